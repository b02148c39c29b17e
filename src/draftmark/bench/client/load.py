"""Sends the requests of one run from shard processes and returns what came of each.

Times of all records are on one clock, from the start of the run. A run that does not reach its end
(the server died, Ctrl-C, a shard was lost) returns what it has and says why.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Sequence

import msgspec

from draftmark.bench.client.crew import Crew, LoadProgress
from draftmark.bench.client.death import account_for_death
from draftmark.bench.client.messages import Setup
from draftmark.bench.client.shares import shares
from draftmark.bench.client.transport import parse_url
from draftmark.bench.profile import Mode
from draftmark.bench.request import PlannedRequest, RequestRecord
from draftmark.bench.result import ClientReport
from draftmark.core.errors import ConfigError

__all__ = ["LoadProgress", "LoadResult", "run_load"]


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """`records` by index. Of requests that were not sent there is one only when the server had
    died: then they are its collateral. `started_ns` is the start of the run as `perf_counter_ns`
    of this process, for others to put their samples on the same clock; `started` and `ended` are
    UTC, ISO 8601."""

    records: list[RequestRecord]
    client: ClientReport
    started_ns: int
    started: str
    ended: str
    # None when every request was sent and ended.
    why_partial: str | None
    server_died: bool


def run_load(
    plans: Sequence[PlannedRequest],
    *,
    url: str,
    mode: Mode,
    concurrency: int,
    timeout_s: float,
    num_shards: int = 1,
    api_key: str | None = None,
    keep_text: bool = False,
    on_start: Callable[[int], None] | None = None,
    on_progress: Callable[[LoadProgress], None] | None = None,
    stop: threading.Event | None = None,
) -> LoadResult:
    """Blocks until the run is over. `concurrency` is that of a closed loop; open ones start each
    request at its `at_s`, whatever is in flight. No more shards than lanes are started.

    `on_start` gets the start of the run as soon as it is fixed (`perf_counter_ns`, just ahead of
    now), `on_progress` ten looks a second at most. `stop`, once set, ends the run as Ctrl-C does.
    Raises `ConfigError` for an address or plans that cannot be, `Unavailable` when no connection
    can be opened.
    """
    parse_url(url)
    _check(plans, mode=mode, concurrency=concurrency, num_shards=num_shards)
    crew = Crew(plans, url=url, api_key=api_key, on_progress=on_progress, stop=stop)
    with tempfile.TemporaryFile() as order:
        if mode is Mode.CLOSED:
            order.write(b"".join(place.to_bytes(4, "little") for place in range(len(plans))))
            order.seek(0)
        queue_fd = order.fileno() if mode is Mode.CLOSED else None
        parts = shares(plans, queue_fd=queue_fd, concurrency=concurrency, num_shards=num_shards)
        try:
            crew.add(
                [
                    Setup(
                        url=url,
                        api_key=api_key,
                        timeout_s=timeout_s,
                        keep_text=keep_text,
                        share=part,
                    )
                    for part in parts
                ]
            )
            crew.wait_until_open()
            started_ns = crew.start()
            if on_start is not None:
                on_start(started_ns)
            crew.follow()
        finally:
            crew.close()
    records = crew.records
    if crew.server_died:
        records = account_for_death(plans, records, met_by=crew.suspects - crew.cleared)
    return LoadResult(
        records=[records[i] for i in sorted(records)],
        client=crew.report(),
        started_ns=started_ns,
        started=crew.started,
        ended=crew.ended,
        why_partial=crew.why_partial,
        server_died=crew.server_died,
    )


def _check(
    plans: Sequence[PlannedRequest], *, mode: Mode, concurrency: int, num_shards: int
) -> None:
    if not plans:
        raise ConfigError("a run without requests measures nothing")
    if num_shards < 1 or concurrency < 1:
        raise ConfigError("a run has at least one shard and one request in flight")
    untimed = [plan.index for plan in plans if plan.at_s is None]
    if mode is not Mode.CLOSED and untimed:
        raise ConfigError(f"mode {mode} needs a time for request {untimed[0]}")
    if len({plan.index for plan in plans}) != len(plans):
        raise ConfigError("two requests of a run have one index")
