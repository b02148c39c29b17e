"""Who sends what: the parts of a run that each shard is given."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from draftmark.bench.request import PlannedRequest


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """Of one shard. In a closed loop every shard has all plans, `lanes` of them in flight, and
    takes the next number from the file `queue_fd`, whose position all shards share; in an open one
    it has its own plans and sends each at its time."""

    plans: list[PlannedRequest]
    lanes: int
    queue_fd: int | None
    connections: int


def shares(
    plans: Sequence[PlannedRequest], *, queue_fd: int | None, concurrency: int, num_shards: int
) -> list[Share]:
    """Of a closed loop by lanes, of an open one by turns."""
    if queue_fd is not None:
        lanes = min(concurrency, len(plans))
        num = min(num_shards, lanes)
        counts = [lanes // num + (i < lanes % num) for i in range(num)]
        return [
            Share(plans=list(plans), lanes=count, queue_fd=queue_fd, connections=count)
            for count in counts
        ]
    ordered = sorted(plans, key=lambda plan: plan.at_s or 0.0)
    num = min(num_shards, len(ordered))
    parts = [ordered[i::num] for i in range(num)]
    return [
        Share(plans=part, lanes=0, queue_fd=None, connections=_open_ahead(part)) for part in parts
    ]


def _open_ahead(plans: list[PlannedRequest]) -> int:
    """Connections for an open loop: as many as start within any one second, within reason."""
    times = [plan.at_s or 0.0 for plan in plans]
    busiest = max(bisect_left(times, time + 1.0) - place for place, time in enumerate(times))
    return min(busiest, 512)
