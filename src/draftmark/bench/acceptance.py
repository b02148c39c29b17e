"""How many tokens a verify step of a speculative server emits, and from where that is known."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from draftmark.bench.request import CountSource, RequestRecord
from draftmark.bench.result import AcceptSource, Counters, PromptKind, Sample, Speculation

_COUNTED = (CountSource.USAGE, CountSource.TOKEN_IDS)


def acceptance(
    succeeded: Sequence[RequestRecord], delta: Counters, prompts: PromptKind
) -> Speculation:
    """From the server's counters over the run, else from what it told of every request. Each verify
    step emits the drafts it accepted and one token of its own. No steps: nothing was drafted, and
    there is no acceptance."""
    steps, accepted, source = delta.verify_steps, delta.accepted, AcceptSource.COUNTERS
    if steps is None or accepted is None:
        steps, accepted = _told(succeeded)
        source = AcceptSource.REQUESTS
    known = steps is not None and accepted is not None
    return Speculation(
        accept=1 + accepted / steps if accepted is not None and steps else None,
        source=source if known else None,
        prompts=prompts,
        steps=steps,
        draft_length=_per_step(delta.drafted, delta.verify_steps),
        per_position=_per_position(delta),
        client_estimate=_client_estimate(succeeded),
    )


def tokens_a_step(succeeded: Sequence[RequestRecord], spec: Speculation) -> float | None:
    """What a sequence gets of a decode step, those without any draft included, which servers do not
    count as verify steps: each gives one token besides the drafts that it accepted. Equal to the
    acceptance where every step had drafts. None where that or the number of tokens is unknown."""
    if spec.steps == 0:
        return 1.0
    if spec.accept is None or spec.steps is None:
        return None
    counts = [record.n_out for record in succeeded]
    if None in counts:
        return None
    # The first token of each comes of its prompt.
    decoded = sum(count - 1 for count in counts if count is not None)
    steps = decoded - (spec.accept - 1) * spec.steps
    return decoded / steps if decoded > 0 and steps > 0 else None


def step_acceptance(samples: Sequence[Sample]) -> list[tuple[int, float]]:
    """Tokens a step between each two samples in which steps were counted, at the later one's
    time."""
    found = []
    for early, late in pairwise(samples):
        steps = _difference(early.counters.verify_steps, late.counters.verify_steps)
        accepted = _difference(early.counters.accepted, late.counters.accepted)
        if steps is not None and accepted is not None and steps > 0 and accepted >= 0:
            found.append((late.t, 1 + accepted / steps))
    return found


def _difference(early: int | None, late: int | None) -> int | None:
    return None if early is None or late is None else late - early


def _told(succeeded: Sequence[RequestRecord]) -> tuple[int | None, int | None]:
    """Steps and accepted drafts of all requests; None if any one of them is silent."""
    told = [record.accept for record in succeeded if record.accept is not None]
    if not told or len(told) < len(succeeded):
        return None, None
    return sum(one.steps for one in told), sum(one.accepted for one in told)


def _per_step(count: int | None, steps: int | None) -> float | None:
    return count / steps if count is not None and steps else None


def _per_position(delta: Counters) -> list[float] | None:
    steps = delta.verify_steps
    if delta.accepted_per_position is None or not steps:
        return None
    return [accepted / steps for accepted in delta.accepted_per_position]


def _client_estimate(succeeded: Sequence[RequestRecord]) -> float | None:
    """Tokens an event, after the first one: an event may hold several steps, or part of one."""
    usable = [
        (record.n_out - (record.n_first or 1), record.events - 1)
        for record in succeeded
        if record.n_out is not None and record.n_out_source in _COUNTED and record.events > 1
    ]
    tokens, events = sum(pair[0] for pair in usable), sum(pair[1] for pair in usable)
    return tokens / events if events else None
