"""Runs that never were: records with times that are known exactly, for the tests of the figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from draftmark.bench.counters import delta
from draftmark.bench.gates import Evidence
from draftmark.bench.measure import measure
from draftmark.bench.profile import Profile
from draftmark.bench.request import CountSource, Failure, RequestRecord
from draftmark.bench.result import ClientReport, Counters, Memory, Role, Sample, ServerState

MS = 1_000_000


def record(
    i: int = 0,
    *,
    send_ms: float = 0,
    ttft_ms: float = 100,
    gaps_ms: Sequence[float] = (10.0,) * 7,
    event_tokens: list[int] | None = None,
    **changes: Any,
) -> RequestRecord:
    """A successful request: its first event `ttft_ms` after `send_ms`, then one after each gap, one
    token an event unless told otherwise. `changes` are fields of the record."""
    send, events = int(send_ms * MS), len(gaps_ms) + 1
    first = send + int(ttft_ms * MS)
    last = first + round(sum(gaps_ms) * MS)
    made = RequestRecord(
        i=i,
        window=None,
        prompt_sha=f"{i:064x}",
        t_sched=send,
        t_send=send,
        t_first=first,
        t_first_content=first,
        t_first_output=first,
        t_last=last,
        t_done=last,
        http=200,
        finish="length",
        n_in_plan=32,
        n_in_usage=32,
        n_cached=0,
        n_out=sum(event_tokens) if event_tokens else events,
        n_out_source=CountSource.USAGE,
        n_first=event_tokens[0] if event_tokens else None,
        events=events,
        icl_us=[round(gap * 1000) for gap in gaps_ms],
        event_tokens=event_tokens,
    )
    return msgspec.structs.replace(made, **changes)


def failed(i: int, failure: Failure, *, at_ms: float | None, **changes: Any) -> RequestRecord:
    """A request that failed before its first token; at None it was never tried."""
    moment = None if at_ms is None else int(at_ms * MS)
    made = RequestRecord(
        i=i,
        window=None,
        prompt_sha=f"{i:064x}",
        t_sched=moment,
        t_send=moment,
        t_done=moment,
        failure=failure,
        n_in_plan=32,
    )
    return msgspec.structs.replace(made, **changes)


def closed_loop(*, concurrency: int, waves: int, **changes: Any) -> list[RequestRecord]:
    """`concurrency` requests in flight, one wave after the other, 1 ms between: a request is 170 ms
    long unless `changes` say otherwise."""
    length_ms = changes.get("ttft_ms", 100) + sum(changes.get("gaps_ms", [70.0]))
    return [
        record(wave * concurrency + lane, send_ms=wave * (length_ms + 1) + lane * 0.01, **changes)
        for wave in range(waves)
        for lane in range(concurrency)
    ]


def profile(**changes: Any) -> Profile:
    fields: dict[str, Any] = {"name": "test", "concurrency": 4, "n_requests": 40}
    return Profile(**{**fields, "isl": 32, "osl": 8, **changes})


def server_state(
    *, start_id: str | None = "a", memory: Memory | None = None, **counters: Any
) -> ServerState:
    return ServerState(
        adapter="draftmark",
        at="2026-01-01T00:00:00.000+00:00",
        url="http://127.0.0.1:8000",
        model="m",
        version="1",
        start_id=start_id,
        config={"max_model_len": 4096},
        counters=Counters(**counters),
        memory=memory,
    )


def evidence(**changes: Any) -> Evidence:
    """A run without fault: four in flight, ten waves, a sample each 100 ms. The figures are those
    of the records that it is given."""
    records = changes.pop("records", None)
    if records is None:
        records = closed_loop(concurrency=4, waves=10)
    shape = changes.get("profile", profile())
    before = changes.get("before", server_state(requests=100, cached_tokens=7))
    after = changes.pop("after", server_state(requests=100 + len(records), cached_tokens=7))
    incidents = changes.pop("incidents", [])
    fields: dict[str, Any] = {
        "role": Role.MEASURE,
        "profile": shape,
        "records": records,
        "measured": measure(records, shape, delta=delta(before, after), incidents=incidents),
        "client": ClientReport(shards=1, lag_p99_ms=0.5, cpu_share=0.2),
        "before": before,
        "after": after,
        "samples": [
            Sample(t=(50 + 100 * second) * MS, running=4, waiting=0, kv_use=0.25)
            for second in range(16)
        ],
    }
    return Evidence(**{**fields, **changes})
