"""What a server counted in a run: its counters after minus those before.

A server that started anew in between counts from zero again: then nothing is known, and not a
negative or a small number.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from draftmark.bench.result import Counters, Sample, ServerReport, ServerState


def same_start(before: ServerState, after: ServerState) -> bool | None:
    """Whether the same process answered at both times. None where it cannot be told."""
    if before.start_id is not None and after.start_id is not None:
        return before.start_id == after.start_id
    pairs = [pair for pair in _pairs(before.counters, after.counters).values() if None not in pair]
    if any(late < early for early, late in pairs if early is not None and late is not None):
        return False
    return None


def delta(before: ServerState | None, after: ServerState | None) -> Counters:
    """All unknown without both states, or when the server started anew between them."""
    if before is None or after is None or same_start(before, after) is False:
        return Counters()
    changes = {
        name: None if early is None or late is None else late - early
        for name, (early, late) in _pairs(before.counters, after.counters).items()
    }
    return Counters(**changes, accepted_per_position=_positions(before.counters, after.counters))


def server_report(
    before: ServerState,
    after: ServerState | None,
    *,
    samples: Sequence[Sample] = (),
    num_missed: int = 0,
) -> ServerReport:
    """`after` None: the server was gone."""
    return ServerReport(
        adapter=before.adapter,
        model=before.model,
        version=before.version,
        start_id=before.start_id,
        kv_pool_tokens=before.kv_pool_tokens,
        samples=len(samples),
        missed=num_missed,
        delta=delta(before, after),
        memory=None if after is None else after.memory,
        synthetic_acceptance=before.synthetic_acceptance,
    )


def _pairs(before: Counters, after: Counters) -> dict[str, tuple[int | None, int | None]]:
    early, late = msgspec.structs.asdict(before), msgspec.structs.asdict(after)
    return {name: (early[name], late[name]) for name in early if name != "accepted_per_position"}


def _positions(before: Counters, after: Counters) -> list[int] | None:
    early, late = before.accepted_per_position, after.accepted_per_position
    if late is None or early is None or len(early) > len(late):
        return None
    # A position nobody reached before has no counter then.
    padded = [*early, *[0] * (len(late) - len(early))]
    return [now - then for then, now in zip(padded, late, strict=True)]
