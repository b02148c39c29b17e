"""Time of one model step on this CPU, against the reading of its weights.

    python benchmarks/cpu_step.py [--threads 2] [--repeat 7] [--linear numba,onednn]

SmolLM2-135M's shape with random weights: what is timed does not depend on their values. A decode
step is `Stage.forward` and `Stage.logits` of every row; a prefill is one forward and the logits of
its last row. Backends are timed in turn within each repeat, and the least time of each is taken,
so that a disturbance hits all alike. The floor of a decode step is the time to read the weights
once at the read bandwidth measured in the same run. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import torch

from draftmark.kernels.backends import choose
from draftmark.layers.attention import AttentionConfig
from draftmark.layers.batch import Batch, PrefillSpan
from draftmark.layers.decoder import DecoderConfig, LayerConfig
from draftmark.layers.mlp import MLPConfig
from draftmark.layers.norm import NormConfig
from draftmark.layers.rotary import RotaryConfig
from draftmark.layers.weight import Placement
from draftmark.models.stage import Stage
from draftmark.parallel.mesh import Mesh

PAGE = 16
ROWS = (1, 4, 8, 16, 64)
CONTEXTS = (64, 512)
PREFILLS = (64, 512)

ATTENTION = AttentionConfig(hidden_size=576, num_heads=9, kv_heads=3, head_dim=64)
SMOLLM2 = DecoderConfig(
    vocab_size=49152,
    hidden_size=576,
    layers=(LayerConfig(mixer=ATTENTION, mlp=MLPConfig(hidden_size=576, intermediate_size=1536)),)
    * 30,
    norm=NormConfig(eps=1e-5),
    rotary=RotaryConfig(dim=64, theta=1e5),
    tied_head=True,
    max_context=8192,
)
NONE = torch.zeros(0, dtype=torch.int64)


def make_stage(dtype: torch.dtype, linear: str) -> Stage:
    device = torch.device("cpu")
    backends = choose(device, dtype=dtype, named={"linear": linear})
    stage = Stage(
        SMOLLM2,
        layers=range(SMOLLM2.num_layers),
        max_context=1024,
        placement=Placement(dtype=dtype, device=device, backends=backends, mesh=Mesh()),
    )
    for weight in stage.parameters():
        weight.data.normal_(std=0.02)
    stage.finish()
    return stage


def make_pools(dtype: torch.dtype) -> list[torch.Tensor]:
    pages = max(ROWS) * (max(CONTEXTS) // PAGE + 1) + 1
    shape = (pages, PAGE, 2 * ATTENTION.kv_heads, ATTENTION.head_dim)
    return [torch.randn(shape).to(dtype) for _ in range(SMOLLM2.num_layers)]


def decode_step(stage: Stage, pools: list, rows: int, context: int) -> Callable[[], object]:
    columns = context // PAGE + 1
    shuffled = torch.randperm(rows * columns, dtype=torch.int32) + 1
    pages = shuffled.view(rows, columns)
    # Lengths differ, as they do in service.
    lengths = context - torch.arange(rows) % 24
    store = pages.long().gather(1, lengths[:, None] // PAGE)[:, 0] * PAGE + lengths % PAGE
    batch = Batch(
        positions=lengths,
        store=store,
        prefill=(),
        verify_offset=0,
        verify_width=1,
        verify_pages=pages,
        verify_lengths=lengths,
        verify_slots=torch.arange(rows),
        verify_folds=torch.ones_like(lengths),
    )
    ids = torch.randint(0, SMOLLM2.vocab_size, (rows,))
    return lambda: stage.logits(stage.forward(ids, batch, pools).hidden)


def prefill_step(stage: Stage, pools: list, count: int) -> Callable[[], object]:
    pages = torch.arange(1, count // PAGE + 1, dtype=torch.int32)
    positions = torch.arange(count)
    batch = Batch(
        positions=positions,
        store=pages.long()[positions // PAGE] * PAGE + positions % PAGE,
        prefill=(PrefillSpan(offset=0, count=count, start=0, pages=pages, slot=1),),
        verify_offset=count,
        verify_width=1,
        verify_pages=torch.zeros(0, 1, dtype=torch.int32),
        verify_lengths=NONE,
        verify_slots=NONE,
        verify_folds=NONE,
    )
    ids = torch.randint(0, SMOLLM2.vocab_size, (count,))
    return lambda: stage.logits(stage.forward(ids, batch, pools).hidden[-1:])


def least_ms(steps: dict[str, Callable[[], object]], *, repeat: int) -> dict[str, float]:
    """Least time of each over `repeat` rounds in turn."""
    best = dict.fromkeys(steps, float("inf"))
    for step in steps.values():
        step()
    for _ in range(repeat):
        for name, step in steps.items():
            for _ in range(2):
                start = time.perf_counter()
                step()
                best[name] = min(best[name], time.perf_counter() - start)
    return {name: 1e3 * seconds for name, seconds in best.items()}


def read_gb_s(num_bytes: int, *, repeat: int) -> float:
    """Bandwidth of reading this many bytes over and over, as the weights are."""
    data = torch.zeros(num_bytes // 4, dtype=torch.int32)
    ms = least_ms({"read": lambda: data.max()}, repeat=repeat)["read"]
    return num_bytes / ms / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--linear", default="numba,onednn", help="backends to compare")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    dtype = getattr(torch, options.dtype)
    with torch.inference_mode():
        stages = {name: make_stage(dtype, name) for name in options.linear.split(",")}
        pools = make_pools(dtype)
        first = next(iter(stages.values()))
        # The table is looked up, not read, by a step; a head that is a copy of it is read.
        table = first.embedding.table.nbytes
        tied = first.head.stored_bytes() == 0
        step_bytes = first.weight_bytes() - (0 if tied else table) - first.rotary.table.nbytes
        bandwidth = read_gb_s(step_bytes, repeat=options.repeat)
        floor = step_bytes / bandwidth / 1e6
        print(f"{step_bytes / 1e6:.0f} MB a step, {bandwidth:.1f} GB/s read, floor {floor:.2f} ms")
        results: dict[str, dict[str, float]] = {}
        for rows in ROWS:
            for context in CONTEXTS:
                steps = {n: decode_step(s, pools, rows, context) for n, s in stages.items()}
                name = f"decode {rows} rows at {context}"
                results[name] = least_ms(steps, repeat=options.repeat)
                report(name, results[name], tokens=rows, floor=floor)
        for count in PREFILLS:
            steps = {n: prefill_step(s, pools, count) for n, s in stages.items()}
            results[f"prefill {count}"] = least_ms(steps, repeat=options.repeat)
            report(f"prefill {count}", results[f"prefill {count}"], tokens=count, floor=floor)
    summary = {"floor_ms": floor, "read_gb_s": bandwidth, "threads": options.threads}
    print(json.dumps({**summary, "dtype": options.dtype, "ms": results}))


def report(name: str, times: dict[str, float], *, tokens: int, floor: float) -> None:
    cells = (
        f"{backend} {ms:8.2f} ms {1e3 * tokens / ms:7.0f} tok/s {floor / ms:4.0%} of floor"
        for backend, ms in times.items()
    )
    print(f"{name:24}", " | ".join(cells), flush=True)


if __name__ == "__main__":
    main()
