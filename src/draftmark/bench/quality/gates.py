"""Gates on whether answers are right. A speed figure stands only with these, on the same start."""

from __future__ import annotations

from draftmark.bench.quality.paired import Paired
from draftmark.bench.quality.run import QualityResult
from draftmark.bench.result import Gate, GateKind, GateState


def non_inferior(paired: Paired | None, *, margin: float, evidence: str) -> Gate:
    """None: there is no reference, or it could not be paired."""
    limit = f"the share is at worst {margin:.1%} below the reference's"
    if paired is None:
        state, observed = GateState.UNKNOWN, "nothing to compare with"
    else:
        holds = paired.is_non_inferior(margin)
        state = GateState.OK if holds else GateState.FAIL
        observed = (
            f"{paired.difference:+.2%}, interval {paired.low:+.2%} to {paired.high:+.2%} of "
            f"{paired.n} problems"
        )
    return Gate(
        id="quality_non_inferior",
        kind=GateKind.QUALITY,
        observed=observed,
        limit=limit,
        state=state,
        evidence=evidence,
        advice="ask more problems if the interval is wide, else look at those that were lost",
    )


def no_degenerate(result: QualityResult, *, evidence: str) -> Gate:
    """No digit noise, no loops. Unknown when some problems got no answer and the rest are sound."""
    bad = [item.id for item in result.items if item.degenerate]
    state = GateState.OK
    if bad or result.failed:
        state = GateState.FAIL if bad else GateState.UNKNOWN
    shown = f": {', '.join(bad[:3])}" if bad else ""
    return Gate(
        id="no_degenerate_output",
        kind=GateKind.QUALITY,
        observed=f"{len(bad)} of {result.n - result.failed} answers{shown}",
        limit="none",
        state=state,
        evidence=evidence,
        advice="read these answers; digits without words or loops are a fault of numbers, not of "
        "prompts",
    )


def same_start(result: QualityResult, start_id: str | None, *, evidence: str) -> Gate:
    """Quality counts for a speed run only when both were measured on one start of the server."""
    told = (result.start_id, start_id)
    state = GateState.UNKNOWN
    if None not in told:
        state = GateState.OK if told[0] == told[1] else GateState.FAIL
    return Gate(
        id="quality_same_start",
        kind=GateKind.QUALITY,
        observed=f"quality on start {told[0]}, speed on start {told[1]}",
        limit="the same start",
        state=state,
        evidence=evidence,
        advice="run both against one start of the server, without a restart between",
    )
