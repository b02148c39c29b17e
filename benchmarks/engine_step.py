"""CPU time the engine process spends on one step: what every decoded token pays on the host.

    python benchmarks/engine_step.py [--rows 1,16,64,256] [--steps 2000]

Parts of a step: `decode` (the result), `commit` (tokens to requests, pages to the cache), `plan`
(scheduling), `encode` (the plan for the worker), `outputs` (the message to the API process). `step`
is their sum; `add` is what queueing one new request costs, apart from steps. Two plans are in
flight, as in the engine. The worker is trivial and not counted. Sequences that end are replaced at
once, so admissions, evictions and prefix-cache inserts are in the figures. CPU time of the thread,
so that a busy machine changes little. Prints a table and one JSON line.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import platform
import random
import statistics
import subprocess
import time
from collections import deque

import msgspec

from draftmark.cache.manager import CacheManager
from draftmark.core.messages import RequestOutput, StepOutputs
from draftmark.core.request import Request, SamplingParams
from draftmark.core.step import ResultRow, StepPlan, StepResult
from draftmark.scheduler.policy import Limits
from draftmark.scheduler.scheduler import Scheduler

PARTS = ("decode", "commit", "plan", "encode", "outputs")
COLUMNS = (*PARTS, "step", "add")
IN_FLIGHT = 2
PROMPT_TOKENS = 96
OUTPUT_TOKENS = 400
TARGETS_US = {64: 200, 256: 500}


class TrivialWorker:
    """Gives every row a token; knows only lengths and ends."""

    def __init__(self, num_slots: int) -> None:
        self.length = [0] * num_slots
        self.end = [0] * num_slots

    def execute(self, plan: StepPlan) -> StepResult:
        for admit in plan.admits:
            self.end[admit.slot] = admit.end
        rows = []
        for chunk in plan.prefill:
            self.length[chunk.slot] = chunk.start + len(chunk.ids)
            if chunk.samples:
                rows.append(self._row(chunk.slot, chunk.generation, fold=0))
        for row in plan.verify:
            self.length[row.slot] += 1
            rows.append(self._row(row.slot, row.generation, fold=1))
        return StepResult(plan.step, plan.cohort, rows, run_us=1)

    def _row(self, slot: int, generation: int, *, fold: int) -> ResultRow:
        length = self.length[slot]
        token = 1000 + (slot * 7919 + length * 104729) % 100_000
        return ResultRow(slot, generation, [token], length, fold, length + 1 >= self.end[slot])


class Bench:
    """A scheduler that always has `rows` sequences decoding."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        pages = rows * (PROMPT_TOKENS + OUTPUT_TOKENS) // 16 + 64
        slots = rows + rows // 4 + 2
        self.scheduler = Scheduler(
            Limits(max_context=4096, max_running=rows, prefill_tokens=4096),
            CacheManager(num_pages=pages, num_slots=slots),
        )
        self.worker = TrivialWorker(slots)
        self.encode = msgspec.msgpack.Encoder().encode
        self.decode = msgspec.msgpack.Decoder(StepResult).decode
        self.results: deque[bytes] = deque()
        self.must_wait = False
        self.add_us: list[float] = []
        self.draw = random.Random(0)
        self.next_id = 0
        # Staggered, so that sequences end one by one and not all in one step.
        for i in range(rows):
            self.add(OUTPUT_TOKENS * (i + 1) // rows + 1)

    def add(self, max_tokens: int) -> None:
        prompt = [self.draw.randrange(100_000) for _ in range(PROMPT_TOKENS)]
        sampling = SamplingParams(max_tokens=max_tokens)
        request = Request(id=self.next_id, prompt_ids=prompt, sampling=sampling, seed=1)
        self.next_id += 1
        start = time.thread_time_ns()
        self.scheduler.add([request])
        self.add_us.append((time.thread_time_ns() - start) / 1000)

    def step(self) -> tuple[dict[str, float], int]:
        """One step as the engine's loop has it: commit the oldest result, plan, send, tell.
        Returns microseconds by part, and the decoding rows of the committed step."""
        now = time.thread_time_ns
        stamps = [now()]
        outputs: list[RequestOutput] = []
        if self.results and (self.must_wait or len(self.results) == IN_FLIGHT):
            result = self.decode(self.results.popleft())
            stamps.append(now())
            outputs = self.scheduler.commit(result)
            stamps.append(now())
        else:
            stamps += [now(), now()]
        plan = self.scheduler.plan()
        stamps.append(now())
        self.must_wait = plan is None
        if plan is not None:
            self.encode(plan)
        stamps.append(now())
        self.encode(StepOutputs(outputs))
        stamps.append(now())
        if plan is not None:
            self.results.append(self.encode(self.worker.execute(plan)))
        for output in outputs:
            if output.finish is not None:
                self.add(OUTPUT_TOKENS)
        spent = [(end - start) / 1000 for start, end in itertools.pairwise(stamps)]
        return dict(zip(PARTS, spent, strict=True)), len(plan.verify) if plan else 0


def measure(rows: int, *, steps: int) -> dict[str, dict[str, float]]:
    """Percentiles in microseconds by part, over `steps` steps after the start-up."""
    bench = Bench(rows)
    for _ in range(OUTPUT_TOKENS + 50):
        bench.step()
    gc.collect()
    gc.freeze()  # as the engine does once it has started
    samples: dict[str, list[float]] = {part: [] for part in (*PARTS, "step")}
    num_rows = 0
    for _ in range(steps):
        spent, verify = bench.step()
        num_rows += verify
        for part, us in spent.items():
            samples[part].append(us)
        samples["step"].append(sum(spent.values()))
    gc.unfreeze()
    assert num_rows > 0.9 * rows * steps, "the batch was not full"
    samples["add"] = bench.add_us
    return {
        part: {"p50": statistics.median(us), "p99": statistics.quantiles(us, n=100)[98]}
        for part, us in samples.items()
    }


def machine() -> dict[str, object]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    )
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "msgspec": msgspec.__version__,
        "commit": commit.stdout.strip(),
    }


def cpu_name() -> str:
    with open("/proc/cpuinfo") as lines:
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="1,16,64,256", help="decoding rows, comma separated")
    parser.add_argument("--steps", type=int, default=2000)
    arguments = parser.parse_args()
    figures = {}
    print(f"{'rows':>5} {'':4}" + "".join(f"{part:>9}" for part in COLUMNS) + "   us")
    for rows in map(int, arguments.rows.split(",")):
        figures[rows] = found = measure(rows, steps=arguments.steps)
        for percentile in ("p50", "p99"):
            values = "".join(f"{found[part][percentile]:9.1f}" for part in COLUMNS)
            target = f"   target {TARGETS_US[rows]}" if rows in TARGETS_US else ""
            print(f"{rows:5} {percentile:4}{values}{target if percentile == 'p50' else ''}")
    print(json.dumps({"bench": "engine_step", "us": figures, **machine()}))


if __name__ == "__main__":
    main()
