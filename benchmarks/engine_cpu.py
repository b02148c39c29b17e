"""CPU time of the engine process per step, over a fake worker process.

Counted is the whole engine process (all threads, system time too): taking messages, scheduling,
encoding, decoding, output fan-out; not the worker. Steady decoding: every row runs in every step,
nothing arrives or ends. `step_ms` is how long the fake worker pauses in a step: 0 keeps the engine
busy, as a fast device does; with a pause, waking up on cold caches costs as much again.

    python benchmarks/engine_cpu.py [--rows 64 256] [--steps 400] [--step-ms 0 5]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools

from harness import fake_engine, print_result

from draftmark.core.request import SamplingParams
from draftmark.engine.client import EngineClient
from draftmark.engine.requests import ModelLimits, RequestMaker


async def measure(client: EngineClient, *, rows: int, steps: int) -> dict[str, object]:
    maker = RequestMaker(ModelLimits.from_ready(client.ready), seed=0)
    sampling = SamplingParams(max_tokens=steps + 300)
    ids = client.new_ids(rows)
    requests = [maker.make(i, [i % 50, *range(50)], sampling) for i in ids]
    streams = client.submit(requests)
    for stream in streams:  # every prompt is through
        await anext(stream)
    start = client.stats.steps
    while client.stats.steps <= start:
        await asyncio.sleep(0.05)
    before = client.stats
    while client.stats.steps < before.steps + steps:
        await asyncio.sleep(0.05)
    after = client.stats
    assert after.running == rows, "a row ended while it was measured"
    client.abort(ids)
    done = after.steps - before.steps
    return {
        "rows": rows,
        "steps": done,
        "engine_us_a_step": (after.engine_us - before.engine_us) / done,
        "worker_us_a_step": (after.worker_us - before.worker_us) / done,
    }


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--step-ms", type=float, nargs="+", default=[0.0, 5.0])
    arguments = parser.parse_args()
    results: list[dict[str, object]] = []
    for step_ms, rows in itertools.product(arguments.step_ms, arguments.rows):
        faults = {"step_ms": step_ms, "max_context": 2048, "free_mib": 1024}
        async with fake_engine(faults=faults, max_running=rows) as client:
            measured = await measure(client, rows=rows, steps=arguments.steps)
        results.append({"step_ms": step_ms, **measured})
    print_result(results, benchmark="engine_cpu", limit_us={"64": 200, "256": 500})


if __name__ == "__main__":
    asyncio.run(main())
