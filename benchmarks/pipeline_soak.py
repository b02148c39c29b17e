"""Random histories over many starts of four workers with delays, then a storm of aborts.

Every history runs once on one worker with one stage, without aborts; then on pp=2 x tp=2 or pp=4
with `--inject delay`, where clients come and leave at random and the pool is too small for all.
What a request got must be the beginning of what it got alone (in float64 only a fault of logic can
change a token), all of it where it ended by itself. Every request must end exactly once, within a
time limit; pages, slots and processes must be back to what they were.

    python benchmarks/pipeline_soak.py [--starts 20] [--requests 1000] [--delay-ms 3]
        [--storm-s 60] [--aborts-per-s 20] [--seed 0]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from harness import children, print_result, real_engine

from draftmark.core.messages import EngineStats
from draftmark.core.request import FinishReason, SamplingParams
from draftmark.engine.client import EngineClient
from draftmark.engine.requests import ModelLimits, RequestMaker
from tests.workers.tiny_model import write_tiny_model

FLAGS = {
    "dtype": "float64",
    "device": "cpu",
    "threads": 1,
    "max_running": 8,
    "max_context": 160,
    "kv_pool_tokens": 320,
    "prefill_tokens": 24,
}
LAYOUTS: dict[str, dict[str, object]] = {
    "pp=2 tp=2": {"pp": 2, "tp": 2, "stages": "1,3"},
    "pp=4": {"pp": 4, "stages": "1,1,1,1"},
}
IN_FLIGHT = 16
ABORT_SHARE = 0.25
HANG_S = 120.0
SETTLE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request. Its client comes `pause_s` after the one before it was let in, and leaves after
    `leave_after` tokens if that is not None."""

    prompt: list[int]
    sampling: SamplingParams
    pause_s: float
    leave_after: int | None


@dataclass(slots=True)
class Tally:
    """What a run gave. `problems` is empty when nothing was wrong."""

    ends: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    steps: int = 0
    preemptions: int = 0
    cached_tokens: int = 0
    requests: int = 0
    starts: int = 0
    mismatches: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def row(self, name: str) -> dict[str, object]:
        ends = {
            end.value: self.ends[end.value] for end in (FinishReason.LENGTH, FinishReason.ABORT)
        }
        return {
            "workers": name,
            "starts": self.starts,
            "requests": self.requests,
            **ends,
            "tokens": self.tokens,
            "steps": self.steps,
            "cached": self.cached_tokens,
            "preemptions": self.preemptions,
            "mismatches": self.mismatches,
            "problems": len(self.problems),
            "seconds": self.seconds,
        }


def make_history(rng: random.Random, *, count: int) -> list[Asked]:
    """Half of the prompts begin like others; some are one token, some longer than a step holds."""
    prefixes = [_ids(rng, 48) for _ in range(3)]
    history = []
    for _ in range(count):
        prompt = _ids(rng, rng.choice((1, rng.randrange(2, 20), rng.randrange(20, 70))))
        if rng.random() < 0.5:
            prompt = (rng.choice(prefixes) + prompt)[:90]
        most = rng.randrange(1, rng.choice((4, 24, 64)))
        history.append(
            Asked(
                prompt=prompt,
                sampling=SamplingParams(
                    max_tokens=most,
                    temperature=rng.choice((0.0, 0.0, 0.9)),
                    seed=rng.randrange(1 << 30),
                    ignore_eos=True,
                ),
                pause_s=rng.choice((0.0, 0.0, rng.random() / 10)),
                leave_after=rng.randrange(0, most) if rng.random() < ABORT_SHARE else None,
            )
        )
    return history


def _ids(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(250) for _ in range(count)]


class Clients:
    """Plays histories to one engine."""

    def __init__(self, client: EngineClient, tally: Tally) -> None:
        self._client = client
        self._tally = tally
        self._maker = RequestMaker(ModelLimits.from_ready(client.ready), seed=0)

    async def play(self, history: list[Asked], *, may_leave: bool) -> list[list[int]]:
        """The tokens that each got."""
        gate = asyncio.Semaphore(IN_FLIGHT)
        tasks = []
        for asked in history:
            await gate.acquire()
            await asyncio.sleep(asked.pause_s if may_leave else 0.0)
            leave_after = asked.leave_after if may_leave else None
            tasks.append(asyncio.create_task(self._one(asked, gate, leave_after)))
        return list(await asyncio.gather(*tasks))

    async def _one(
        self, asked: Asked, gate: asyncio.Semaphore, leave_after: int | None
    ) -> list[int]:
        try:
            [request_id] = self._client.new_ids(1)
            request = self._maker.make(request_id, asked.prompt, asked.sampling)
            return await self.follow(request_id, self._client.submit([request])[0], leave_after)
        finally:
            gate.release()

    async def follow(self, request_id: int, stream: object, leave_after: int | None) -> list[int]:
        """Read a stream to its end, and abort it on the way."""
        tokens: list[int] = []
        ends: list[FinishReason] = []
        if leave_after == 0:
            self._client.abort([request_id])
        async for output in stream:  # type: ignore[attr-defined]
            tokens += output.token_ids
            if output.finish is not None:
                ends.append(output.finish)
                if output.finish is FinishReason.ERROR:
                    self._tally.problems.append(f"request {request_id}: {output.error}")
            elif leave_after is not None and len(tokens) >= leave_after:
                self._client.abort([request_id])
        self._tally.requests += 1
        self._tally.tokens += len(tokens)
        self._tally.ends.update(end.value for end in ends)
        if len(ends) != 1:
            self._tally.problems.append(f"request {request_id} had {len(ends)} ends")
        return tokens


async def settled(client: EngineClient) -> EngineStats:
    """Stats once nothing runs, waits or drains."""
    async with asyncio.timeout(SETTLE_S):
        while client.stats.running or client.stats.waiting or client.stats.draining:
            await asyncio.sleep(0.05)
        word = client.stats.engine_us
        while client.stats.engine_us == word:  # one more word, so that it is the last state
            await asyncio.sleep(0.05)
    return client.stats


async def check_whole(client: EngineClient, first: EngineStats, tally: Tally) -> None:
    """Pages and slots are back; the figures go into `tally`."""
    used = await settled(client)
    tally.steps += used.steps
    tally.preemptions += used.preemptions
    tally.cached_tokens += used.cached_tokens
    await client.reset_cache()
    last = await settled(client)
    for name in ("pages_free", "slots_free"):
        was, now = getattr(first, name), getattr(last, name)
        if was != now:
            tally.problems.append(f"{name}: {was} at the start, {now} at the end")


def compare(
    history: list[Asked], got: list[list[int]], alone: list[list[int]], tally: Tally
) -> None:
    for index, (asked, ours, theirs) in enumerate(zip(history, got, alone, strict=True)):
        complete = asked.leave_after is None
        if ours != (theirs if complete else theirs[: len(ours)]):
            tally.mismatches += 1
            tally.problems.append(f"request {index} of a history: {ours} is not {theirs}")


async def run_start(
    model: str, layout: str, history: list[Asked], alone: list[list[int]], tally: Tally, delay: str
) -> None:
    began, before = time.monotonic(), children()
    async with real_engine(model, **FLAGS, **LAYOUTS[layout], inject=f"delay={delay}") as client:
        first = await settled(client)
        async with asyncio.timeout(HANG_S):
            got = await Clients(client, tally).play(history, may_leave=True)
        compare(history, got, alone, tally)
        await check_whole(client, first, tally)
    _check_processes(before, tally)
    tally.starts += 1
    tally.seconds += time.monotonic() - began


def _check_processes(before: set[int], tally: Tally) -> None:
    if children() != before:
        tally.problems.append(f"processes left: {children() - before}")


async def run_storm(model: str, tally: Tally, *, seconds: float, rate: float, seed: int) -> None:
    """Aborts at a steady rate, each of a request chosen at random, replaced by a new one."""
    began, before = time.monotonic(), children()
    rng = random.Random(seed)
    async with real_engine(model, **FLAGS, pp=2, stages="2,2") as client:
        first = await settled(client)
        clients = Clients(client, tally)
        maker = RequestMaker(ModelLimits.from_ready(client.ready), seed=seed)
        live: dict[int, asyncio.Task[list[int]]] = {}
        done: list[asyncio.Task[list[int]]] = []
        storm_began = time.monotonic()
        for turn in itertools.count():
            now = time.monotonic() - storm_began
            if now >= seconds:
                break
            for request_id in [key for key, task in live.items() if task.done()]:
                done.append(live.pop(request_id))
            while len(live) < IN_FLIGHT:
                [request_id] = client.new_ids(1)
                sampling = SamplingParams(max_tokens=rng.randrange(8, 64), ignore_eos=True)
                request = maker.make(request_id, _ids(rng, rng.randrange(1, 80)), sampling)
                [stream] = client.submit([request])
                live[request_id] = asyncio.create_task(clients.follow(request_id, stream, None))
            client.abort([rng.choice(list(live))])
            await asyncio.sleep(max(0.0, storm_began + (turn + 1) / rate - time.monotonic()))
        async with asyncio.timeout(HANG_S):
            await asyncio.gather(*done, *live.values())
        await check_whole(client, first, tally)
    _check_processes(before, tally)
    tally.starts += 1
    tally.seconds += time.monotonic() - began


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--delay-ms", default="3")
    parser.add_argument("--storm-s", type=float, default=60.0)
    parser.add_argument("--aborts-per-s", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    each = -(-arguments.requests // arguments.starts)
    histories = [make_history(rng, count=each) for _ in range(arguments.starts)]
    one, storm = Tally(), Tally()
    tallies = {layout: Tally() for layout in LAYOUTS}
    with tempfile.TemporaryDirectory() as directory:
        model = str(write_tiny_model(Path(directory) / "tiny"))
        began = time.monotonic()
        async with real_engine(model, **FLAGS) as client:
            first = await settled(client)
            clients = Clients(client, one)
            alone = [await clients.play(history, may_leave=False) for history in histories]
            await check_whole(client, first, one)
        one.starts, one.seconds = 1, time.monotonic() - began
        for layout, history, tokens in zip(
            itertools.cycle(LAYOUTS), histories, alone, strict=False
        ):
            await run_start(model, layout, history, tokens, tallies[layout], arguments.delay_ms)
            print(tallies[layout].row(layout), flush=True)
        if arguments.storm_s:
            await run_storm(
                model,
                storm,
                seconds=arguments.storm_s,
                rate=arguments.aborts_per_s,
                seed=arguments.seed,
            )
    named = {"one": one, **tallies, "storm pp=2": storm}
    problems = [problem for tally in named.values() for problem in tally.problems]
    print_result(
        [tally.row(name) for name, tally in named.items()],
        benchmark="pipeline_soak",
        delay_ms=float(arguments.delay_ms),
        aborts_per_s=arguments.aborts_per_s,
        storm_s=arguments.storm_s,
        problems=problems[:20],
    )
    if problems:
        raise SystemExit(1)


if __name__ == "__main__":
    asyncio.run(main())
