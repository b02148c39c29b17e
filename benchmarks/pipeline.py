"""Do S stages give S times the throughput of one? The layers sleep, everything else is real.

    python benchmarks/pipeline.py [--pairs 2x2 4x4 2x1] [--stage-ms 20] [--jitter 0.1]
                                  [--seconds 15] [--lanes peer] [--realtime] [--seed 0]

A pair `SxM` compares S stages of `--stage-ms` each with one stage of S times that, both with M
cohorts. Only what the model computes is replaced, by a sleep that does not depend on the rows (a
step that reads all weights) and differs from step to step by up to `--jitter`; `simulated_worker`
does that. API and engine process, scheduler, worker processes, lanes with hidden states of 2,048
bfloat16, sampling, return rows, commits and aborts are the real ones, at their real cost. Because
the sleep does not depend on the rows, runs with another M must not be compared: fewer cohorts have
more rows each.

The load: 64 requests at once (`burst`); then, whenever one ends, another with a prompt of 8 to 700
tokens, one of 6,000 among them (`mix`); every eighth is aborted somewhere. Then nothing comes any
more (`drain`) until three requests are left, which go on for a while (`three`). Both phases of the
end are reported apart: with so few requests cohorts are empty.

`2x1` is the negative control, an engine with `--cohorts 1`: the stages take turns, and two give
1.0x of one. That is what peers measured on two H200s, whose requests all fall into one cohort.

Columns: `tok/s` and `steps/s` as the client and the engine count them; `busy` is each stage's share
in %, from the engine's statistics (a sampled total, so that short phases are off by a few); `rows`
of each cohort at the end of the phase; `late` the mean ms from submission to a first token;
`engine_us` CPU time of the engine process a step; `others` the cores that other processes of the
machine used meanwhile, which make a sleeping stage late; `best` is the ratio that sleeps alone
allow: a step waits for its stage, and for the step that is M before it.

With `--realtime` (needs root) our processes come before all others of the machine, once started.

Ends with status 1 when `burst` or `mix` misses its target, an answer is wrong, something is lost,
or the control gains anything.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import simulated_worker
from harness import print_result

from draftmark.core.messages import EngineStats
from draftmark.core.request import FinishReason, Request, SamplingParams
from draftmark.core.resolve import load_config
from draftmark.engine.client import EngineClient
from draftmark.engine.requests import ModelLimits, RequestMaker
from tests.fakes.tokenizer import write_model_dir

ROWS = 64
KEPT = 3
LONG_PROMPT = 6000
PROMPTS = (8, 40, 120, 300, 700)
ABORT_EVERY = 8
# At least so many times one stage of the whole time.
TARGETS = {2: 1.85, 4: 3.4}
JUDGED = ("burst", "mix")
CONTROL_LIMIT = 1.1
START_LIMIT_S, CASE_LIMIT_S = 60, 120
# The control has nothing to resolve.
CONTROL_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    stages: int
    cohorts: int
    total_ms: float


@dataclass(slots=True)
class Answer:
    tokens: list[int] = field(default_factory=list)
    ends: list[FinishReason] = field(default_factory=list)


class Load:
    """One run of all phases. `problems` is empty when every request got what it should."""

    def __init__(self, client: EngineClient, *, seed: int, rounds: int, temperature: float) -> None:
        self.answers: dict[int, Answer] = {}
        self.problems: list[str] = []
        self.phases: dict[str, dict[str, object]] = {}
        self._client = client
        self._seed = seed
        self._rounds = rounds
        self._temperature = temperature
        self._maker = RequestMaker(ModelLimits.from_ready(client.ready), seed=seed)
        self._phase = ""
        self._tokens = 0
        self._first_s: list[float] = []
        self._changed = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._ids: dict[int, int] = {}

    async def run(self) -> None:
        work = self._rounds * ROWS
        while not self._client.stats.stage_busy_us:
            await asyncio.sleep(0.05)
        async with self._measured("burst"):
            self._refill()
            await self._until(lambda: self._tokens >= work)
        async with self._measured("mix"):
            await self._until(lambda: self._tokens >= work)
        async with self._measured("drain"):
            await self._until(lambda: len(self._running) <= KEPT)
        async with self._measured("three"):
            await self._until(lambda: self._tokens >= KEPT * max(12, self._rounds // 3))
        self._client.abort([self._ids[index] for index in range(KEPT)])
        await self._until(lambda: not self._running)
        await self._check_pools()

    async def _check_pools(self) -> None:
        """Nothing is held by anybody any more."""
        client = self._client
        while client.stats.running or client.stats.draining:
            await asyncio.sleep(0.05)
        await client.reset_cache()
        for _ in range(20):
            await asyncio.sleep(0.1)
            stats = client.stats
            if stats.pages_free == stats.pages_total and stats.slots_free == stats.slots_total:
                return
        self.problems.append(f"not all came back: {client.stats}")

    @asynccontextmanager
    async def _measured(self, phase: str) -> AsyncIterator[None]:
        self._phase, self._tokens, self._first_s = phase, 0, []
        first, cpu, began = self._client.stats, _cpu_of_others(), time.perf_counter()
        yield
        seconds, last = time.perf_counter() - began, self._client.stats
        late = 1e3 * sum(self._first_s) / max(1, len(self._first_s))
        self.phases[phase] = {
            "s": seconds,
            "tok/s": self._tokens / seconds,
            "steps/s": (last.steps - first.steps) / seconds,
            "busy": _busy(first, last, seconds),
            "rows": "/".join(str(rows) for rows in last.cohort_rows),
            "late": late,
            "engine_us": (last.engine_us - first.engine_us) / max(1, last.steps - first.steps),
            "others": (_cpu_of_others() - cpu) / seconds,
        }

    async def _until(self, is_done: Callable[[], bool]) -> None:
        """Raises when a request failed: nothing after that would be the load that was meant."""
        while not is_done():
            self._changed.clear()
            await self._changed.wait()
            if self.problems:
                raise RuntimeError(self.problems[0])

    def _refill(self) -> None:
        while self._phase in JUDGED and len(self._running) < ROWS and not self.problems:
            self._submit()

    def _submit(self) -> None:
        """The first 64 are the same in every run with so many rounds."""
        index = len(self.answers)
        rng = random.Random(f"{self._seed} {index}")
        rounds, is_first = self._rounds, index < ROWS
        if index < KEPT:
            num_prompt, most = 64, simulated_worker.MAX_CONTEXT - 64
        elif is_first:
            num_prompt, most = rng.randrange(32, 96), rng.randrange(rounds, 3 * rounds // 2)
        else:
            num_prompt, most = rng.choice(PROMPTS), rng.randrange(8, max(16, rounds // 2))
        if index == ROWS + 8:
            num_prompt = LONG_PROMPT
        abort_after = None
        if index >= KEPT and index % ABORT_EVERY == 0:
            abort_after = rng.randrange(0, most)
        prompt = [rng.randrange(300, simulated_worker.VOCAB) for _ in range(num_prompt)]
        sampling = SamplingParams(
            max_tokens=most, temperature=self._temperature, ignore_eos=True, seed=index
        )
        [request_id] = self._client.new_ids(1)
        self._ids[index] = request_id
        answer = self.answers[index] = Answer()
        request = self._maker.make(request_id, prompt, sampling)
        task = asyncio.create_task(self._follow(request, answer, abort_after=abort_after))
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if task.cancelled():
            return
        if task.exception() is not None:
            self.problems.append(f"{task.exception()!r}")
        self._refill()
        self._changed.set()

    async def _follow(self, request: Request, answer: Answer, *, abort_after: int | None) -> None:
        began = time.perf_counter()
        [stream] = self._client.submit([request])
        error = ""
        async for output in stream:
            error = output.error
            if output.token_ids and not answer.tokens:
                self._first_s.append(time.perf_counter() - began)
            answer.tokens += output.token_ids
            self._tokens += len(output.token_ids)
            self._changed.set()
            if output.finish is not None:
                answer.ends.append(output.finish)
            elif abort_after is not None and len(answer.tokens) >= abort_after:
                self._client.abort([request.id])
        most, found = request.sampling.max_tokens, len(answer.tokens)
        if len(answer.ends) != 1 or answer.ends[0] not in (FinishReason.LENGTH, FinishReason.ABORT):
            self.problems.append(f"request {request.id} ended by {answer.ends} {error}")
        elif answer.ends[0] is FinishReason.LENGTH and found != most:
            self.problems.append(f"request {request.id} gave {found} of {most} tokens")


def _cpu_of_others() -> float:
    """Seconds of CPU time that processes which are not ours have used, since the machine started.
    Those of ours that ended count as others': nothing ends while it is measured."""
    own = psutil.Process()
    ours = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    every = psutil.cpu_times()
    return sum(every) - every.idle - every.iowait - sum(one.user + one.system for one in ours)


def _come_first() -> None:
    """Every thread of ours is run before those of other processes."""
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        for thread in process.threads():
            os.sched_setscheduler(thread.id, os.SCHED_RR, os.sched_param(1))


def _busy(first: EngineStats, last: EngineStats, seconds: float) -> str:
    pairs = zip(first.stage_busy_us, last.stage_busy_us, strict=True)
    return "/".join(f"{(b - a) / 1e4 / seconds:.0f}" for a, b in pairs)


async def run_case(case: Case, *, model: str, arguments: argparse.Namespace) -> Load:
    layer_ms = case.total_ms / simulated_worker.LAYERS
    # One stage takes about `--seconds` for each of the first two phases.
    seconds = arguments.seconds * (CONTROL_SHARE if case.cohorts == 1 else 1.0)
    rounds = round(seconds * 1000 / (case.cohorts * case.total_ms))
    flags: dict[str, object] = {
        "model": model,
        "dtype": "bfloat16",
        "device": "cpu",
        "threads": 1,
        "kv_pool_tokens": 65536,
        "max_context": simulated_worker.MAX_CONTEXT,
        "max_running": ROWS,
        "prefill_tokens": arguments.prefill_tokens,
        "pp": case.stages,
        "stages": ",".join([str(simulated_worker.LAYERS // case.stages)] * case.stages),
        "cohorts": case.cohorts,
    }
    if case.stages > 1:
        flags["lanes"] = arguments.lanes
    worker = simulated_worker.command(
        layer_ms=layer_ms, jitter=arguments.jitter, seed=arguments.seed
    )
    async with asyncio.timeout(START_LIMIT_S):
        client = await EngineClient.start(load_config(flags), worker=worker)
    try:
        if arguments.realtime:
            _come_first()
        load = Load(client, seed=arguments.seed, rounds=rounds, temperature=arguments.temperature)
        async with asyncio.timeout(CASE_LIMIT_S):
            await load.run()
    finally:
        if arguments.realtime:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        await client.close()
    return load


def best_ratio(stages: int, cohorts: int, *, jitter: float, seed: int) -> float:
    """Of `stages` stages over one, when nothing but the layers takes time: each stage takes steps
    one after the other, and a step waits for the one that is `cohorts` before it."""
    rng, steps = random.Random(seed), 20_000
    free, ends = [0.0] * stages, [0.0] * cohorts
    for step in range(steps):
        at = ends[step % cohorts]
        for stage in range(stages):
            at = max(at, free[stage]) + rng.uniform(1 - jitter, 1 + jitter)
            free[stage] = at
        ends[step % cohorts] = at
    return stages * steps / free[-1]


def compare(one: Load, many: Load) -> list[str]:
    """What is wrong with the answers of `many`: those of the burst are the same in both runs."""
    different = []
    for index in range(ROWS):
        pairs = zip(one.answers[index].tokens, many.answers[index].tokens, strict=False)
        if any(a != b for a, b in pairs):
            different.append(index)
    return [f"answers differ: {different}"] if different else []


async def run_pair(
    stages: int, cohorts: int, *, model: str, arguments: argparse.Namespace
) -> tuple[list[dict[str, object]], list[str]]:
    """Rows of the table, and what is wrong."""
    total_ms = stages * arguments.stage_ms
    loads = [
        await run_case(
            Case(stages=count, cohorts=cohorts, total_ms=total_ms), model=model, arguments=arguments
        )
        for count in (1, stages)
    ]
    one, many = loads
    problems = [*one.problems, *many.problems, *compare(one, many)]
    best = best_ratio(stages, cohorts, jitter=arguments.jitter, seed=arguments.seed)
    rows = []
    for count, load in zip((1, stages), loads, strict=True):
        for phase, found in load.phases.items():
            ratio = found["tok/s"] / one.phases[phase]["tok/s"]  # type: ignore[operator]
            is_judged = phase in JUDGED and count > 1
            wanted = TARGETS.get(stages) if is_judged and cohorts == stages else None
            rows.append(
                {
                    "pair": f"{stages}x{cohorts}",
                    "stages": count,
                    "phase": phase,
                    **found,
                    "ratio": f"{ratio:.2f}",
                    "best": f"{best:.2f}" if is_judged else "",
                    "wanted": "" if wanted is None else f"{wanted:.2f}",
                }
            )
            if wanted is not None and ratio < wanted:
                problems.append(f"{stages}x{cohorts} {phase}: {ratio:.2f}x, wanted {wanted}x")
            if is_judged and cohorts == 1 and ratio > CONTROL_LIMIT:
                problems.append(f"the control {stages}x1 gains {ratio:.2f}x in {phase}")
    return rows, problems


def _pair(text: str) -> tuple[int, int]:
    stages, _, cohorts = text.partition("x")
    return int(stages), int(cohorts)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=_pair, nargs="+", default=[(2, 2), (4, 4), (2, 1)])
    parser.add_argument("--stage-ms", type=float, default=20.0)
    parser.add_argument("--jitter", type=float, default=0.1)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--prefill-tokens", type=int, default=512)
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--lanes", choices=("peer", "gloo"), default="peer")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    load_before = round(os.getloadavg()[0], 2)
    rows: list[dict[str, object]] = []
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        directory = write_model_dir(Path(name) / "simulated")
        simulated_worker.write_model(directory)
        for stages, cohorts in arguments.pairs:
            more, wrong = await run_pair(stages, cohorts, model=str(directory), arguments=arguments)
            rows += more
            problems += wrong
    about = {**vars(arguments), "load_before": load_before, "problems": problems}
    print_result(rows, benchmark="pipeline", **about)
    for problem in problems:
        print(problem)
    if problems:
        raise SystemExit(1)


if __name__ == "__main__":
    asyncio.run(main())
