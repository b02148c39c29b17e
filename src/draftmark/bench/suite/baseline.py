"""Two runs of the suite side by side: what broke, what is mended, and why the time differs.

A case takes tokens x seconds a token. Its difference in time is split into the part of more or
fewer tokens and the part of a faster or slower server, each at the mean of the other: the two add
up to the whole difference.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from draftmark.bench.result import Gate, GateKind, GateState
from draftmark.bench.suite.runner import SuiteResult, SuiteRow


class Change(StrEnum):
    SAME = "same"
    BROKEN = "broken"
    MENDED = "mended"
    NEW = "new"
    GONE = "gone"


class CaseChange(msgspec.Struct, frozen=True, kw_only=True):
    """`seconds` is now minus then, `by_tokens` + `by_speed` of it; None where a time or a number
    of tokens is unknown."""

    id: str
    change: Change
    seconds: float | None = None
    by_tokens: float | None = None
    by_speed: float | None = None


class SuiteComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The sums are over cases that passed in both runs and whose parts are known."""

    broken: list[str]
    mended: list[str]
    compared: int
    seconds: float
    by_tokens: float
    by_speed: float
    rows: list[CaseChange]


def compare_suites(result: SuiteResult, baseline: SuiteResult) -> SuiteComparison:
    now, then = ({row.id: row for row in suite.rows} for suite in (result, baseline))
    rows = [_change(one, now.get(one), then.get(one)) for one in sorted(now.keys() | then.keys())]
    counted = [
        row
        for row in rows
        if row.by_tokens is not None and row.change is Change.SAME and now[row.id].passed
    ]
    return SuiteComparison(
        broken=[row.id for row in rows if row.change is Change.BROKEN],
        mended=[row.id for row in rows if row.change is Change.MENDED],
        compared=len(counted),
        seconds=sum(row.seconds or 0 for row in counted),
        by_tokens=sum(row.by_tokens or 0 for row in counted),
        by_speed=sum(row.by_speed or 0 for row in counted),
        rows=rows,
    )


def no_new_failure(compared: SuiteComparison, *, evidence: str) -> Gate:
    """A case that the baseline passed and this run lacks is not known to be sound."""
    gone = [row.id for row in compared.rows if row.change is Change.GONE]
    state = GateState.OK
    if compared.broken or gone:
        state = GateState.FAIL if compared.broken else GateState.UNKNOWN
    parts = [f"broken: {', '.join(compared.broken)}"] if compared.broken else []
    parts += [f"not run: {', '.join(gone)}"] if gone else []
    return Gate(
        id="suite_no_new_failure",
        kind=GateKind.QUALITY,
        observed="; ".join(parts) or "none",
        limit="no case fails that passed in the baseline",
        state=state,
        evidence=evidence,
        advice="run the broken cases alone against both servers",
    )


def _change(one: str, now: SuiteRow | None, then: SuiteRow | None) -> CaseChange:
    if now is None:
        return CaseChange(id=one, change=Change.GONE)
    if then is None:
        return CaseChange(id=one, change=Change.NEW)
    change = Change.SAME
    if now.passed != then.passed:
        change = Change.MENDED if now.passed else Change.BROKEN
    if now.seconds is None or then.seconds is None:
        return CaseChange(id=one, change=change)
    seconds = now.seconds - then.seconds
    if not now.tokens or not then.tokens:
        return CaseChange(id=one, change=change, seconds=seconds)
    paces = now.seconds / now.tokens, then.seconds / then.tokens
    return CaseChange(
        id=one,
        change=change,
        seconds=seconds,
        by_tokens=(now.tokens - then.tokens) * sum(paces) / 2,
        by_speed=(paces[0] - paces[1]) * (now.tokens + then.tokens) / 2,
    )
