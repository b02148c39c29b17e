"""Runs side by side. A ratio is given only where both figures mean the same: of one version of the
metrics, one basis, one source of token counts, one profile, and runs that may be believed.

What may not be compared is refused by its name, or shown without a ratio and with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from draftmark.bench.gates import why_invalid
from draftmark.bench.metrics import FIGURES, GAP_METRICS, REQUEST_METRICS
from draftmark.bench.report import cells
from draftmark.bench.result import Basis, Figure, Role, RunResult, RunState
from draftmark.core.errors import DraftmarkError

# Fields of a profile that may differ: who it is, and how often it is run.
_ALIKE_ANYWAY = frozenset({"name", "seed", "runs", "warm_runs", "timeout_s", "slo"})
# Figures that mean what the objectives say.
_BY_OBJECTIVES = frozenset({"goodput_req_s", "attainment"})
_STATISTICS = ("mean", "p50", "p90", "p99")


class NotComparable(DraftmarkError):
    """Figures that do not mean the same."""

    code = "not_comparable"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of every run. `ratios` are to the first run; None without a reason to divide."""

    name: str
    unit: str
    basis: Basis
    cells: list[str]
    ratios: list[float | None]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    runs: list[str]
    rows: list[Row]
    # Why there are no ratios, or what else to know; one sentence each.
    notes: list[str]


def ratio(left: Figure, right: Figure, *, names: tuple[str, str]) -> float | None:
    """`left` by `right`; None when either was not measured. Raises `NotComparable` for figures of
    two bases: a step of the steady span by a step of whole requests is no ratio of two steps."""
    for kind in ("basis", "unit"):
        mine, other = getattr(left, kind), getattr(right, kind)
        if mine != other:
            raise NotComparable(f"{names[0]} by {names[1]} mixes {kind}: {mine} against {other}")
    if left.value is None or not right.value:
        return None
    return left.value / right.value


def compare(runs: Sequence[RunResult]) -> Comparison:
    """Raises `NotComparable` for runs that have no figures, or figures of different meaning."""
    _refuse(runs)
    notes = _profile_notes(runs) + _validity_notes(runs)
    divides = not notes
    rows = [*_distribution_rows(runs, divides), *_figure_rows(runs, divides)]
    accept_row, accept_notes = _acceptance(runs, divides)
    return Comparison(
        runs=[run.run_id for run in runs],
        rows=[*rows, accept_row],
        notes=notes + accept_notes + _remarks(runs),
    )


def side_by_side(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table: behind the figure of each run but the first its ratio to that."""
    first, *others = comparison.runs
    head = ["figure", "unit", first]
    for name in others:
        head += [name, f"{name} / {first}"]
    rows = []
    for row in comparison.rows:
        line = [row.name, row.unit, row.cells[0]]
        for cell, share in zip(row.cells[1:], row.ratios, strict=True):
            line += [cell, "" if share is None else f"{share:.3f}"]
        rows.append(line)
    return head, rows


def _refuse(runs: Sequence[RunResult]) -> None:
    if len(runs) < 2:
        raise NotComparable("a comparison takes two runs or more")
    for run in runs:
        if run.state is RunState.PARTIAL:
            raise NotComparable(f"{run.run_id} is partial ({run.why_partial}): it has no figures")
        if run.tokens.source is None:
            told = ", ".join(run.tokens.sources) or "none"
            raise NotComparable(f"{run.run_id} mixes sources of its token counts: {told}")
    _same(runs, "versions of the metrics", [str(run.metrics_v) for run in runs])
    _same(runs, "sources of token counts", [str(run.tokens.source) for run in runs])


def _same(runs: Sequence[RunResult], what: str, values: Sequence[str]) -> None:
    if len(set(values)) > 1:
        each = ", ".join(f"{run.run_id} {value}" for run, value in zip(runs, values, strict=True))
        raise NotComparable(f"two {what}: {each}")


def _profile_notes(runs: Sequence[RunResult]) -> list[str]:
    profiles = [msgspec.structs.asdict(run.profile) for run in runs]
    notes = []
    for field in profiles[0]:
        values = [profile[field] for profile in profiles]
        if field not in _ALIKE_ANYWAY and any(value != values[0] for value in values):
            told = " and ".join(dict.fromkeys(str(value) for value in values))
            notes.append(f"No ratios: the profiles differ in {field} ({told}).")
    return notes


def _validity_notes(runs: Sequence[RunResult]) -> list[str]:
    notes = [
        f"No ratios: {run.run_id} is a warm run, which counts for nothing."
        for run in runs
        if run.role is Role.WARM
    ]
    for run in runs:
        missed = [f"{gate.id} {gate.state}" for gate in why_invalid(run.gates)]
        if missed:
            notes.append(f"No ratios: {run.run_id} is invalid ({', '.join(missed)}).")
    rates = {run.server.synthetic_acceptance for run in runs}
    if len(rates) > 1:
        notes.append("No ratios: synthetic acceptance is not the same in all runs.")
    return notes


def _remarks(runs: Sequence[RunResult]) -> list[str]:
    """What a reader of the ratios must know besides."""
    notes = [
        f"SYNTHETIC ACCEPTANCE {run.server.synthetic_acceptance} in {run.run_id}: coins accepted "
        "drafts."
        for run in runs
        if run.server.synthetic_acceptance is not None
    ]
    if len({run.profile.slo for run in runs}) > 1:
        notes.append("Goodput and attainment have no ratio: the objectives differ.")
    models = dict.fromkeys(run.server.model or cells.NOT_MEASURED for run in runs)
    if len(models) > 1:
        notes.append(f"Different models: {', '.join(models)}. Their tokens may differ, too.")
    return notes


def _distribution_rows(runs: Sequence[RunResult], divides: bool) -> list[Row]:
    rows = []
    for metric in (*REQUEST_METRICS, *GAP_METRICS):
        name = metric.definition.name
        for statistic in _STATISTICS:
            figures = [
                Figure(
                    unit=run.metrics[name].unit,
                    basis=run.metrics[name].basis,
                    n=run.metrics[name].n,
                    value=getattr(run.metrics[name], statistic),
                )
                for run in runs
            ]
            if any(figure.value is not None for figure in figures):
                rows.append(_row(f"{name} {statistic}", figures, divides))
    return rows


def _figure_rows(runs: Sequence[RunResult], divides: bool) -> list[Row]:
    found = [(name, [run.figures[name] for run in runs]) for name in FIGURES]
    is_one_aim = len({run.profile.slo for run in runs}) == 1
    return [
        _row(name, figures, divides and (is_one_aim or name not in _BY_OBJECTIVES))
        for name, figures in found
        if any(figure.value is not None for figure in figures)
    ]


def _acceptance(runs: Sequence[RunResult], divides: bool) -> tuple[Row, list[str]]:
    """Acceptance of random ids is not that of text, and a counter's not that of the requests."""
    speculating = [run for run in runs if run.spec.accept is not None]
    kinds = {str(run.spec.prompts) for run in speculating}
    sources = {str(run.spec.source) for run in speculating}
    notes = [
        f"accept has no ratio: {what} {' and '.join(sorted(values))} are not the same."
        for what, values in (("prompts of", kinds), ("sources", sources))
        if len(values) > 1
    ]
    figures = [
        Figure(unit="tok", basis=Basis.WHOLE_RUN, n=run.counts.ok, value=run.spec.accept)
        for run in runs
    ]
    row = _row("accept", figures, divides and not notes)
    return msgspec.structs.replace(row, cells=[cells.accept(run.spec) for run in runs]), notes


def _row(name: str, figures: Sequence[Figure], divides: bool) -> Row:
    first = figures[0]
    return Row(
        name=name,
        unit=first.unit,
        basis=first.basis,
        cells=[cells.figure(figure) for figure in figures],
        ratios=[
            ratio(figure, first, names=(name, name)) if divides else None for figure in figures[1:]
        ],
    )
