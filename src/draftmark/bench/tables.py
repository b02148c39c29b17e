"""Results of the commands that measure no speed, for a terminal and for a document."""

from __future__ import annotations

from collections.abc import Sequence

from draftmark.bench.conc import ConcResult
from draftmark.bench.declared import Difference
from draftmark.bench.quality import Paired, QualityResult, QuickResult
from draftmark.bench.report.table import table
from draftmark.bench.result import Drift, DriftState
from draftmark.bench.suite import SuiteComparison, SuiteResult


def suite_table(result: SuiteResult) -> str:
    head = ["case", "", "s", "content", "reasoning", "tools", "finish", "tok", "chunks", "faults"]
    rows = [
        [
            row.id,
            "pass" if row.passed else "FAIL",
            row.seconds,
            f"content[{row.content}]",
            f"reasoning[{row.reasoning}]",
            ", ".join(row.tools) or None,
            row.finish,
            row.tokens,
            row.chunks,
            "; ".join(row.faults),
        ]
        for row in result.rows
    ]
    counts = f"{result.passed} passed, {result.failed} failed"
    return f"{table(head, rows)}\n\n{_partial(result.stopped)}{counts}"


def suite_comparison_table(compared: SuiteComparison) -> str:
    head = ["case", "", "s", "by tokens", "by speed"]
    rows = [
        [row.id, row.change, _signed(row.seconds), _signed(row.by_tokens), _signed(row.by_speed)]
        for row in compared.rows
    ]
    sums = (
        f"{compared.compared} cases compared: {compared.seconds:+.2f} s, of it "
        f"{compared.by_tokens:+.2f} s by the number of tokens, {compared.by_speed:+.2f} s by speed"
    )
    broken = ", ".join(compared.broken) or "none"
    return f"{table(head, rows)}\n\n{sums}\nbroken: {broken}"


def quick_table(result: QuickResult) -> str:
    rows = [
        [row.name, "pass" if row.passed else "FAIL", "; ".join(row.faults), row.answer[:60]]
        for row in result.rows
    ]
    score = f"{_partial(result.stopped)}{result.passed}/{result.of}"
    return f"{table(['prompt', '', 'faults', 'answer'], rows)}\n\n{score}"


def quality_text(result: QualityResult, paired: Paired | None = None) -> str:
    """A few sentences; with `paired`, against its reference."""
    lines = [f"{result.task}: {result.correct} of {result.n} right"]
    if result.share is None:
        lines[0] = f"{_partial(result.stopped)}{lines[0]}, {result.failed} not answered: no share"
    else:
        lines[0] += f", {result.share:.1%} (95 % interval {result.low:.1%} to {result.high:.1%})"
    lines.append(
        f"{result.marked} answers in the form asked for, {result.degenerate} degenerate ones"
    )
    if paired is not None:
        lines.append(
            f"against the reference: {paired.gained} gained, {paired.lost} lost, difference "
            f"{paired.difference:+.2%} ({paired.low:+.2%} to {paired.high:+.2%}), "
            f"McNemar p = {paired.p:.3g}"
        )
    return "\n".join(lines)


def conc_table(result: ConcResult) -> str:
    rows = [
        [one.round, one.index, one.kind, one.word, one.at, one.margin, one.note]
        for one in result.outcomes
    ]
    lines = [
        f"{_partial(result.stopped)}{result.in_flight} in flight, {result.rounds} rounds: "
        f"{result.equal} equal, {result.ties} ties (within {result.tie_nats:g} nats), "
        f"{result.differs} differ, {result.failed} failed"
    ]
    lines += [f"left out: {reason}" for reason in result.left_out]
    if rows:
        head = ["round", "request", "kind", "", "token", "margin", "what"]
        lines += ["", table(head, rows)]
    return "\n".join(lines)


def drift_table(rows: Sequence[Drift], *, with_implicit: bool = False) -> str:
    """What nobody declared is counted, and listed only when asked for."""
    shown = [row for row in rows if with_implicit or row.state is not DriftState.IMPLICIT]
    cells = [[row.key, row.state, row.declared, row.effective] for row in shown]
    counts = ", ".join(f"{sum(row.state is state for row in rows)} {state}" for state in DriftState)
    return f"{table(['key', '', 'declared', 'effective'], cells)}\n\n{counts}"


def difference_table(rows: Sequence[Difference], *, names: tuple[str, str]) -> str:
    """Two servers, by their `names`."""
    if not rows:
        return f"{names[0]} and {names[1]} tell no difference"
    return table(["setting", *names], [[row.key, row.a, row.b] for row in rows])


def _partial(stopped: str | None) -> str:
    """Before counts that say nothing of the whole."""
    return "" if stopped is None else f"PARTIAL, {stopped}. "


def _signed(value: float | None) -> str | None:
    return None if value is None else f"{value:+.2f}"
