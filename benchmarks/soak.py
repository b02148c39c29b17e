"""1,000 requests at 64 in flight, some aborted, some stopped by the host: is anything lost?

Through the real engine (smollm2), or with --fake over the fake worker, whose answers are checked
token by token. Every request must get exactly one end; afterwards pages, slots and processes must
be back to their start values, and the cache must be whole when it is dropped.

    python benchmarks/soak.py [--fake] [--requests 1000] [--in-flight 64] [--seed 0]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections import Counter
from contextlib import AbstractAsyncContextManager

from harness import children, fake_engine, print_result, real_engine

from draftmark.core.messages import EngineStats
from draftmark.core.request import FinishReason, Request, SamplingParams
from draftmark.engine.client import EngineClient
from draftmark.engine.requests import ModelLimits, RequestMaker
from tests.fakes.worker import expected
from tests.fakes.worker_process import VOCAB_SIZE

ABORT_SHARE = 0.25
FINISH_SHARE = 0.1


class Soak:
    """One run. `problems` is empty when nothing was lost."""

    def __init__(self, client: EngineClient, *, seed: int, is_fake: bool) -> None:
        self.client = client
        self.is_fake = is_fake
        self.ends: Counter[str] = Counter()
        self.tokens = 0
        self.problems: list[str] = []
        self._rng = random.Random(seed)
        self._limits = ModelLimits.from_ready(client.ready)
        self._maker = RequestMaker(self._limits, seed=seed)
        self._prefixes = [self._ids(64) for _ in range(8)]

    async def run(self, *, requests: int, in_flight: int) -> None:
        gate = asyncio.Semaphore(in_flight)

        async def one() -> None:
            async with gate:
                await self._one()

        await asyncio.gather(*(one() for _ in range(requests)))

    async def _one(self) -> None:
        request = self._request()
        abort_after = finish_after = None
        if self._rng.random() < ABORT_SHARE:
            abort_after = self._rng.randrange(0, 40)
        elif self._rng.random() < FINISH_SHARE:
            finish_after = self._rng.randrange(1, 20)
        [stream] = self.client.submit([request])
        if abort_after == 0:
            self.client.abort([request.id])
        tokens: list[int] = []
        ends: list[FinishReason] = []
        async for output in stream:
            tokens += output.token_ids
            if output.finish is not None:
                ends.append(output.finish)
                if output.finish is FinishReason.ERROR:
                    self.problems.append(f"request {request.id}: {output.error}")
            elif abort_after is not None and len(tokens) >= abort_after:
                self.client.abort([request.id])
            elif finish_after is not None and len(tokens) >= finish_after:
                self.client.finish(request.id, finish_after, FinishReason.STOP)
        self._judge(request, tokens, ends, abort_after=abort_after, finish_after=finish_after)

    def _judge(
        self,
        request: Request,
        tokens: list[int],
        ends: list[FinishReason],
        *,
        abort_after: int | None,
        finish_after: int | None,
    ) -> None:
        if len(ends) != 1:
            self.problems.append(f"request {request.id} had {len(ends)} ends")
            return
        self.ends[ends[0].value] += 1
        self.tokens += len(tokens)
        most = request.sampling.max_tokens
        if ends[0] is FinishReason.LENGTH and len(tokens) != most:
            self.problems.append(f"request {request.id}: {len(tokens)} of {most} tokens")
        if ends[0] is FinishReason.ABORT and abort_after is None:
            self.problems.append(f"request {request.id} was aborted by nobody")
        if self.is_fake:
            truth = expected(
                request, max_context=self._limits.max_context, vocab_size=VOCAB_SIZE
            ).tokens
            if tokens != truth[: len(tokens)]:
                self.problems.append(f"request {request.id} has wrong tokens")

    def _request(self) -> Request:
        """Half of the prompts begin with one of eight prefixes."""
        rng = self._rng
        prompt = self._ids(rng.randrange(1, 60))
        if rng.random() < 0.5:
            prompt = rng.choice(self._prefixes) + prompt
        sampling = SamplingParams(
            max_tokens=rng.randrange(1, rng.choice((16, 64, 360))),
            temperature=rng.choice((0.0, 0.8)),
            ignore_eos=True,
        )
        [request_id] = self.client.new_ids(1)
        return self._maker.make(request_id, prompt, sampling, priority=rng.choice((0, 0, 0, 1)))

    def _ids(self, count: int) -> list[int]:
        return [self._rng.randrange(20, self._limits.vocab_size) for _ in range(count)]


async def _settled(client: EngineClient) -> EngineStats:
    """Stats once nothing runs, waits or drains."""
    async with asyncio.timeout(30):
        while client.stats.running or client.stats.waiting or client.stats.draining:
            await asyncio.sleep(0.05)
        steps = client.stats.engine_us
        while client.stats.engine_us == steps:  # one more word, so that it is the last state
            await asyncio.sleep(0.05)
    return client.stats


def _compare(soak: Soak, first: EngineStats, last: EngineStats, dropped: int) -> None:
    for name in ("pages_free", "slots_free"):
        was, now = getattr(first, name), getattr(last, name)
        if was != now:
            soak.problems.append(f"{name}: {was} at the start, {now} at the end")
    if last.pages_free != last.pages_total or last.pages_cached:
        soak.problems.append(f"the cache is not whole: {last}")
    if dropped == 0:
        soak.problems.append("nothing was cached at the end: the prefix cache did nothing")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fake", action="store_true")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--pool-tokens", type=int, default=1536, help="small: preemptions happen")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    flags = {"kv_pool_tokens": arguments.pool_tokens, "max_running": 48, "seed": arguments.seed}
    engine: AbstractAsyncContextManager[EngineClient]
    if arguments.fake:
        engine = fake_engine(faults={"step_ms": 2}, **flags)
    else:
        engine = real_engine(arguments.model, **flags)
    before = children()
    began = time.monotonic()
    async with engine as client:
        first = await _settled(client)
        soak = Soak(client, seed=arguments.seed, is_fake=arguments.fake)
        await soak.run(requests=arguments.requests, in_flight=arguments.in_flight)
        seconds = time.monotonic() - began
        used = await _settled(client)
        dropped = await client.reset_cache()
        _compare(soak, first, await _settled(client), dropped)
    if children() != before:
        soak.problems.append(f"processes left: {children() - before}")
    row: dict[str, object] = {
        "requests": arguments.requests,
        "ends": sum(soak.ends.values()),
        **dict(sorted(soak.ends.items())),
        "tokens": soak.tokens,
        "steps": used.steps,
        "cached_tokens": used.cached_tokens,
        "preemptions": used.preemptions,
        "overrun": used.overrun_tokens,
        "engine_us_a_step": used.engine_us / max(used.steps, 1),
        "seconds": seconds,
        "problems": len(soak.problems),
    }
    print_result([row], benchmark="soak", fake=arguments.fake, problems=soak.problems[:20])
    if soak.problems or sum(soak.ends.values()) != arguments.requests:
        raise SystemExit(1)


if __name__ == "__main__":
    asyncio.run(main())
