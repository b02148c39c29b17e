"""A run as one HTML file: no script, nothing fetched, light or dark as the reader has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from draftmark.bench.gates import standing
from draftmark.bench.metrics import FIGURES, GAP_METRICS, REQUEST_METRICS
from draftmark.bench.report import cells
from draftmark.bench.report.charts import charts
from draftmark.bench.report.page import figures, named, page, section, table
from draftmark.bench.request import RequestRecord
from draftmark.bench.result import Drift, Gate, GateState, LogFinding, RunResult, RunState, Sample


def run_html(
    run: RunResult, records: Sequence[RequestRecord], samples: Sequence[Sample] = ()
) -> str:
    is_complete = run.state is RunState.COMPLETE
    parts = [
        _header(run),
        _tiles(run) if is_complete else "",
        figures(charts(run, records, samples)),
        section("Times, in ms", _distributions(run)) if is_complete else "",
        section("Figures", _figures(run)) if is_complete else "",
        section("Requests", _counts(run)),
        section("Gates", _gates(run.gates)),
        section("Declared and effective", _drift(run.drift)) if run.drift is not None else "",
        section("Server's log", _log(run.log)) if run.log is not None else "",
        section("Made with", _made_with(run)),
    ]
    return page(run.run_id, "".join(parts))


def _header(run: RunResult) -> str:
    is_partial = run.state is RunState.PARTIAL
    word = "partial" if is_partial else str(standing(run.gates))
    why = cells.missed(run.gates)
    if is_partial:
        why = f"{run.why_partial}. There are rows and counts, and no figures"
    server = " ".join(part for part in (run.server.adapter, run.server.version) if part)
    return (
        f'<header><p class="kind">{escape(run.role)} run of {escape(run.server.model or "?")}, '
        f"{escape(server)}</p><h1>{escape(run.run_id)}</h1>"
        f'<p class="what">{escape(cells.headline(run))}</p>'
        f'<p><span class="pill {word}">{word.upper()}</span> {escape(why)}</p></header>'
    )


def _tiles(run: RunResult) -> str:
    ttft, which_ttft = cells.middle(run.metrics.get("ttft_ms"))
    tpot, which_tpot = cells.middle(run.metrics.get("tpot_ms"))
    e2e, which_e2e = cells.middle(run.metrics.get("e2e_ms"))
    speculates = run.spec.accept is not None
    tiles = [
        ("Output", cells.figure(run.figures.get("out_tok_s")), "tok/s"),
        ("First token", ttft, f"ms {which_ttft}"),
        ("Per further token", tpot, f"ms {which_tpot}"),
        ("End to end", e2e, f"ms {which_e2e}"),
        ("Succeeded", f"{run.counts.ok:,}", f"of {run.counts.sent:,}"),
    ]
    if speculates:
        tiles.append(("Tokens a step", cells.number(run.spec.accept), cells.prompts(run.spec)))
    inside = "".join(
        f'<div><dt>{name}</dt><dd>{escape(value)} <span class="unit">{escape(unit)}</span></dd>'
        "</div>"
        for name, value, unit in tiles
    )
    return f'<dl class="tiles">{inside}</dl>'


def _distributions(run: RunResult) -> str:
    rows = []
    for metric in (*REQUEST_METRICS, *GAP_METRICS):
        found = run.metrics[metric.definition.name]
        if found.n:
            row = [
                named(metric.definition.name, metric.definition.means),
                cells.number(found.n),
                cells.number(found.mean),
                *(cells.quantile(found, name) for name in cells.QUANTILES),
                cells.number(found.max),
                cells.quantile_with_failures(found, "p99"),
            ]
            rows.append([row[0], *map(escape, row[1:])])
    head = ["", "n", "mean", *cells.QUANTILES, "max", "p99, failures ∞"]
    return table(head, rows, numbers=True)


def _figures(run: RunResult) -> str:
    rows = [
        [
            named(name, definition.means),
            escape(cells.figure(run.figures[name])),
            "" if definition.unit == "share" else escape(definition.unit),
            escape(definition.basis.replace("_", " ")),
        ]
        for name, definition in FIGURES.items()
    ]
    estimate = cells.number(run.spec.client_estimate)
    rows += [
        [
            named("accept", "Tokens a verify step emits, weighted by tokens."),
            escape(cells.accept(run.spec)), "tok", "whole run",
        ],
        [
            named("accept, the client's guess", "Tokens an event; it decides nothing."),
            escape(estimate), "tok", "whole run",
        ],
    ]  # fmt: skip
    return table(["", "", "unit", "basis"], rows, numbers=True)


def _counts(run: RunResult) -> str:
    counts, tokens = run.counts, run.tokens
    rows = [
        ["succeeded", f"{counts.ok:,} of {counts.sent:,}"],
        ["failed", escape(cells.failures(counts.by_class))],
        ["tokens in, out, cached", ", ".join(
            cells.number(count) for count in (tokens.input, tokens.output, tokens.cached))],
        ["tokens counted by", escape(cells.counted_by(tokens))],
    ]  # fmt: skip
    rows += [
        [
            "the server died",
            escape(
                f"request {incident.i}: {incident.failure}; {incident.collateral} more failed of "
                f"it. {incident.error or ''}"
            ),
        ]
        for incident in counts.incidents
    ]
    return table(["", ""], rows)


def _gates(gates: Sequence[Gate]) -> str:
    rows = []
    for gate in gates:
        missed = gate.state in (GateState.FAIL, GateState.UNKNOWN)
        advice = f'<div class="advice">{escape(gate.advice)}</div>' if missed else ""
        rows.append(
            [
                named(gate.id, gate.evidence),
                f'<span class="pill {gate.state}">{gate.state}</span>',
                f"{escape(gate.observed)}{advice}",
                escape(gate.limit),
            ]
        )
    return table(["", "", "observed", "limit"], rows)


def _drift(drift: Iterable[Drift]) -> str:
    rows = [
        [escape(row.key), escape(row.state), escape(str(row.declared)), escape(str(row.effective))]
        for row in drift
    ]
    return table(["key", "", "declared", "effective"], rows)


def _log(log: Iterable[LogFinding]) -> str:
    rows = [
        [
            escape(row.klass),
            f"{row.count:,}",
            cells.number(row.limit),
            "<br>".join(f"<code>{escape(line)}</code>" for line in row.examples),
        ]
        for row in log
    ]
    return table(["class", "lines", "limit", "examples"], rows)


def _made_with(run: RunResult) -> str:
    client, server = run.client, run.server
    share = "" if client.cpu_share is None else f", {client.cpu_share:.0%} of a core"
    rows = [
        ["command", f"<code>{escape(' '.join(run.command))}</code>"],
        ["time", escape(f"{run.time.started} to {run.time.ended}")],
        ["server", escape(f"start {server.start_id or cells.NOT_MEASURED}, read "
                          f"{server.samples} times, {server.missed} missed")],
        ["client", escape(f"{cells.shards(client)}, lag p99 "
                          f"{cells.number(client.lag_p99_ms)} ms{share}")],
        ["configuration", escape(run.config_id)],
        ["metrics version", str(run.metrics_v)],
    ]  # fmt: skip
    if run.ledger is not None:
        first, end = run.ledger.window
        window = f"{run.ledger.corpus} [{first:,}, {end:,}), {run.ledger.klass}"
        rows.append(["corpus", escape(window)])
    rows += [
        [escape(name), f"<code>{entry.sha256}</code>, {entry.bytes:,} bytes"]
        for name, entry in run.files.items()
    ]
    return table(["", ""], rows)
