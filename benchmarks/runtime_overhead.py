"""What the runtime adds to the model: a step's time without `Stage.forward` and `Stage.logits`.

    python benchmarks/runtime_overhead.py [--threads 2] [--repeat 60] [--rows 1,16,64]

SmolLM2-135M's shape with random weights in bf16. A step is a plan of verify rows through
`WorkerRun.launch` and `result`: staging, slot state, sampling, the result's structs. The least time
of each is taken. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from cpu_step import SMOLLM2

from draftmark.core.step import Admit, PageDelta, PrefillRow, RowSampling, StepPlan, VerifyRow
from draftmark.kernels.backends import choose
from draftmark.layers.weight import Placement
from draftmark.models.stage import Stage
from draftmark.parallel.mesh import Mesh
from draftmark.runtime.memory import RunLimits
from draftmark.runtime.pipeline import WorkerRun, make_lone_run

CONTEXT = 1024
# name -> (temperature, top_p, top_k, presence, frequency, repetition, logprobs)
KINDS: dict[str, tuple[float, float, int, float, float, float, int]] = {
    "greedy": (0.0, 1.0, 0, 0.0, 0.0, 1.0, -1),
    "T 0.2 top_p 0.9": (0.2, 0.9, 0, 0.0, 0.0, 1.0, -1),
    "T 1": (1.0, 1.0, 0, 0.0, 0.0, 1.0, -1),
    "T 0.7 top_p 0.95 top_k 40 penalties": (0.7, 0.95, 40, 0.5, 0.5, 1.1, -1),
    "greedy, 5 logprobs": (0.0, 1.0, 0, 0.0, 0.0, 1.0, 5),
}


def make_stage() -> Stage:
    device, dtype = torch.device("cpu"), torch.bfloat16
    placement = Placement(
        dtype=dtype, device=device, backends=choose(device, dtype=dtype), mesh=Mesh()
    )
    stage = Stage(SMOLLM2, layers=range(30), max_context=CONTEXT, placement=placement)
    for weight in stage.parameters():
        weight.data.normal_(std=0.05)
    stage.finish()
    return stage


class Clock:
    """Adds up the time inside the functions it wraps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self.seconds += time.perf_counter() - began

        return timed


def measure(run: WorkerRun, clock: Clock, kind: str, rows: int, repeat: int) -> tuple[float, float]:
    """(milliseconds without the model, milliseconds with it), the least of each."""
    temperature, top_p, top_k, presence, frequency, repetition, logprobs = KINDS[kind]
    sampling = RowSampling(
        1, temperature, top_p, top_k, 0.0, presence, frequency, repetition, logprobs
    )
    run.reset()
    prompt = list(range(100, 132))
    slots = range(1, rows + 1)
    first = StepPlan(
        0,
        0,
        0,
        0,
        [Admit(slot, 1, slot, 0, CONTEXT, 0, (2,), sampling, prompt) for slot in slots],
        [PageDelta(slot, 1, 0, list(range(9 * slot - 8, 9 * slot + 1))) for slot in slots],
        [PrefillRow(slot, 1, 0, prompt[:8], -1, True) for slot in slots],
        [],
    )
    run.launch(first).result()
    verify = [VerifyRow(slot, 1) for slot in slots]
    least, whole = float("inf"), float("inf")
    for step in range(1, repeat + 1):
        clock.seconds = 0.0
        began = time.perf_counter()
        run.launch(StepPlan(step, 0, 0, 0, [], [], [], verify)).result()
        total = time.perf_counter() - began
        least, whole = min(least, total - clock.seconds), min(whole, total)
    return least * 1e3, whole * 1e3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=60)
    parser.add_argument("--rows", default="1,16,64")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    stage, clock = make_stage(), Clock()
    head = clock.wrap(stage.logits)
    stage.forward = clock.wrap(stage.forward)  # type: ignore[method-assign]
    stage.logits = head  # type: ignore[method-assign]
    limits = RunLimits(
        num_pages=600, num_slots=66, max_context=CONTEXT, max_running=64, prefill_tokens=512
    )
    device = torch.device("cpu")
    run = make_lone_run(stage, limits=limits, kv_dtype=torch.bfloat16, device=device)
    results = []
    for kind in KINDS:
        for rows in map(int, options.rows.split(",")):
            added, whole = measure(run, clock, kind, rows, options.repeat)
            print(f"{kind:<36} {rows:>3} rows: {added:7.3f} ms beside {whole:7.2f}", flush=True)
            results.append({"kind": kind, "rows": rows, "added_ms": added, "step_ms": whole})
    print(json.dumps({"threads": options.threads, "results": results}))


if __name__ == "__main__":
    main()
