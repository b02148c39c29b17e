"""Time of the two ways through a mixture of experts on this CPU, beside what the backends choose.

    python benchmarks/experts.py [--threads 2] [--repeat 7] [--dtypes float32,bfloat16]

Random weights and choices. `whole` is every token through every expert, `looped` the loop over the
experts that were hit, both on plain weights; `numba`, `onednn` and `torch` are those backends,
whichever way they take, and `route` is the first one's. Ways are timed in turn within each repeat,
and the least time of each is taken, so that a disturbance hits all alike. `whole` is left out
beyond 2^33 multiplications. The last line is JSON.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from harness import print_result

from draftmark.kernels import experts
from draftmark.kernels.backends import available
from draftmark.kernels.experts import torch as plain

CPU = torch.device("cpu")
# Experts, chosen, intermediate features, hidden size.
SHAPES = ((16, 4, 160, 512), (64, 8, 128, 512), (64, 8, 256, 1024), (256, 8, 512, 2048))
ROWS = (1, 2, 4, 16, 64, 512)
WAYS = ("looped", "whole", "torch", "onednn", "numba", "route")
LEAST_S = 0.02
WHOLE_MACS = 1 << 33


def ways(
    gate_up: torch.Tensor, down: torch.Tensor, *, top_k: int
) -> Callable[[int], dict[str, Callable[[], object]]]:
    """Number of rows -> calls by the name of the way."""
    num_experts, _, hidden_size = gate_up.shape
    dtype = gate_up.dtype
    backends = [n for n in available("experts", device=CPU, dtype=dtype) if n != "reference"]
    prepared = {name: experts.prepare(gate_up, down, backend=name) for name in backends}

    def of_rows(rows: int) -> dict[str, Callable[[], object]]:
        x = torch.randn(rows, hidden_size).to(dtype)
        logits = torch.randn(rows, num_experts)
        ids, weights = experts.route(logits, top_k=top_k, renormalise=True, backend="torch")
        calls: dict[str, Callable[[], object]] = {
            "looped": lambda: plain.looped(x, ids, weights, gate_up, down)
        }
        if rows * gate_up.numel() * 3 // 2 <= WHOLE_MACS:
            calls["whole"] = lambda: plain.whole(x, ids, weights, gate_up, down)
        for name in backends:
            calls[name] = lambda name=name: experts.experts(
                x, ids=ids, weights=weights, prepared=prepared[name], backend=name
            )
        calls["route"] = lambda: experts.route(
            logits, top_k=top_k, renormalise=True, backend=backends[0]
        )
        return calls

    return of_rows


def least_us(calls: dict[str, Callable[[], object]], *, repeat: int) -> dict[str, float]:
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(repeat):
        for name, call in calls.items():
            count, began = 0, time.perf_counter()
            while count == 0 or time.perf_counter() - began < LEAST_S:
                call()
                count += 1
            least[name] = min(least[name], 1e6 * (time.perf_counter() - began) / count)
    return least


def measure(options: argparse.Namespace) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for name in options.dtypes.split(","):
        dtype = getattr(torch, name)
        for num_experts, top_k, size, hidden_size in SHAPES:
            gate_up = torch.randn(num_experts, 2 * size, hidden_size).mul_(0.05).to(dtype)
            down = torch.randn(num_experts, hidden_size, size).mul_(0.05).to(dtype)
            of_rows = ways(gate_up, down, top_k=top_k)
            for rows in ROWS:
                us = least_us(of_rows(rows), repeat=options.repeat)
                is_whole = plain.is_whole_faster(gate_up, num_tokens=rows, top_k=top_k)
                found.append(
                    {
                        "dtype": name,
                        "experts": f"{num_experts}/{top_k}/{size}/{hidden_size}",
                        "rows": rows,
                        **{way: round(us[way], 1) if way in us else None for way in WAYS},
                        "policy": "whole" if is_whole else "looped",
                    }
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--dtypes", default="float32,bfloat16")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    with torch.inference_mode():
        rows = measure(options)
    print_result(rows, unit="us", threads=options.threads, torch=torch.__version__)


if __name__ == "__main__":
    main()
