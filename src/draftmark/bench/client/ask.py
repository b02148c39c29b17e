"""Single requests and few at a time, in this process: for what is asked to be read, not timed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter_ns

import msgspec

from draftmark.bench.client.answer import Answer
from draftmark.bench.client.pool import Pool
from draftmark.bench.client.stream import Channels
from draftmark.bench.client.transport import parse_url, request_bytes
from draftmark.bench.request import PlannedRequest, RequestRecord


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a request, and its text by where it went."""

    record: RequestRecord
    channels: Channels


async def ask(
    plans: Sequence[PlannedRequest],
    *,
    url: str,
    concurrency: int,
    timeout_s: float,
    api_key: str | None = None,
) -> list[Reply]:
    """The answers in the order of `plans`, at most `concurrency` under way; times of plans are not
    looked at. A request that fails has its class in its record: nothing is raised for it."""
    target = parse_url(url)
    pool = Pool(target)
    gate = asyncio.Semaphore(concurrency)
    origin = perf_counter_ns()

    async def one(plan: PlannedRequest) -> Reply:
        async with gate:
            answer = Answer(plan, origin=origin, keep_text=True)
            request = request_bytes(target, plan.path, body=plan.body, api_key=api_key)
            now, problem = await pool.exchange(request, answer, timeout_s=timeout_s)
            return Reply(record=answer.end(now, problem), channels=answer.channels)

    try:
        return await asyncio.gather(*(one(plan) for plan in plans))
    finally:
        pool.close()
