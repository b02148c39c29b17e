"""A run, or several side by side, as Markdown: for a document, and for a terminal."""

from __future__ import annotations

from draftmark.bench.gates import standing
from draftmark.bench.metrics import FIGURES, GAP_METRICS, REQUEST_METRICS
from draftmark.bench.report import cells
from draftmark.bench.report.compare import Comparison, side_by_side
from draftmark.bench.report.table import table
from draftmark.bench.result import Role, RunResult, RunState


def run_markdown(run: RunResult) -> str:
    kind = f"{run.role.title()} run. " if run.role is not Role.MEASURE else ""
    parts = [f"## {run.run_id}", "", f"{kind}{cells.headline(run)}.", "", _stands(run), ""]
    if run.state is RunState.COMPLETE:
        parts += [_distributions(run), "", _figures(run), ""]
    parts += [*_counts(run), "", *_gates(run), "", *_footing(run)]
    return "\n".join(parts) + "\n"


def comparison_markdown(comparison: Comparison) -> str:
    head, rows = side_by_side(comparison)
    notes = [f"- {note}" for note in comparison.notes]
    return "\n".join([table(head, rows, numbers=True), *([""] if notes else []), *notes]) + "\n"


def _stands(run: RunResult) -> str:
    if run.state is RunState.PARTIAL:
        return f"**PARTIAL**: {run.why_partial}. There are rows and counts, and no figures."
    return f"**{standing(run.gates).upper()}**: {cells.missed(run.gates)}."


def _distributions(run: RunResult) -> str:
    rows = []
    for metric in (*REQUEST_METRICS, *GAP_METRICS):
        found = run.metrics[metric.definition.name]
        if found.n:
            rows.append(
                [
                    metric.definition.name,
                    cells.number(found.n),
                    cells.number(found.mean),
                    *(cells.quantile(found, name) for name in cells.QUANTILES),
                    cells.number(found.max),
                    cells.quantile_with_failures(found, "p99"),
                ]
            )
    head = ["ms", "n", "mean", *cells.QUANTILES, "max", "p99, failures ∞"]
    return table(head, rows, numbers=True)


def _figures(run: RunResult) -> str:
    rows = [
        [name, cells.figure(run.figures[name]), definition.unit, definition.basis]
        for name, definition in FIGURES.items()
    ]
    return table(["figure", "value", "unit", "basis"], [*rows, _accept_row(run)], numbers=True)


def _accept_row(run: RunResult) -> list[str]:
    return ["accept", cells.accept(run.spec), "tok", "whole_run"]


def _counts(run: RunResult) -> list[str]:
    counts = run.counts
    lines = [
        f"- {counts.ok} of {counts.sent} requests succeeded; failures: "
        f"{cells.failures(counts.by_class)}"
    ]
    lines += [
        f"- The server died at request {incident.i} ({incident.failure}); "
        f"{incident.collateral} more failed of it"
        for incident in counts.incidents
    ]
    tokens = run.tokens
    lines.append(
        f"- Tokens: {cells.number(tokens.input)} in, {cells.number(tokens.output)} out "
        f"(by {cells.counted_by(tokens)}), {cells.number(tokens.cached)} cached"
    )
    return lines


def _gates(run: RunResult) -> list[str]:
    rows = [[gate.id, gate.state, gate.observed, gate.limit] for gate in run.gates]
    advice = [f"- {gate.id}: {gate.advice}" for gate in run.gates if gate.state == "fail"]
    advice += [
        f"- {gate.id}: {gate.advice} Where this server cannot tell: `--waive {gate.id}`."
        for gate in run.gates
        if gate.state == "unknown" and run.state is RunState.COMPLETE
    ]
    return [table(["gate", "", "observed", "limit"], rows), *([""] if advice else []), *advice]


def _footing(run: RunResult) -> list[str]:
    server = run.server
    return [
        f"- Server: {server.model or cells.NOT_MEASURED}, {server.adapter} "
        f"{server.version or cells.NOT_MEASURED}, start {server.start_id or cells.NOT_MEASURED}",
        f"- Client: {cells.shards(run.client)}, lag p99 {cells.number(run.client.lag_p99_ms)} ms",
        f"- {run.time.started} to {run.time.ended}, metrics version {run.metrics_v}",
        f"- `{' '.join(run.command)}`",
    ]
