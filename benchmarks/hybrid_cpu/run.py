"""Output tok/s of a random hybrid of 50 million parameters: draftmark and `transformers`, in turn.

    python benchmarks/hybrid_cpu/run.py [--rounds 2] [--repeats 3] [--dtype bfloat16]

A Qwen3.5-MoE of 8 layers (6 delta nets with 4 and 8 heads of 128, 2 attention layers with heads of
256, 16 experts, top 4, and a shared one), saved by `transformers`. Greedy, random prompts without
reuse. Each side runs in a fresh process, `--rounds` times; a figure is the median of all. The batch
of 16 is compared with what `transformers` gives for the same batch, and for one at a time.
Prints a table and, last, one JSON line; ends with status 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT), str(ROOT / "benchmarks")]

from harness import describe_machine  # noqa: E402

from draftmark import Engine, SamplingParams  # noqa: E402
from tests.fakes.tokenizer import write_model_dir  # noqa: E402

BATCHES, NUM_IN, NUM_OUT = (1, 16), 64, 64
TARGETS = {1: 3.0, 16: 8.0}
SIDES = ("draftmark", "transformers")

Generate = Callable[[list[list[int]]], list[int]]


def write_model(directory: Path, dtype: torch.dtype) -> int:
    """Number of parameters."""
    config = Qwen3_5MoeTextConfig(
        vocab_size=4096,
        hidden_size=512,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=256,
        linear_num_key_heads=4,
        linear_num_value_heads=8,
        moe_intermediate_size=160,
        shared_expert_intermediate_size=160,
        num_experts=16,
        num_experts_per_tok=4,
        max_position_embeddings=2048,
        eos_token_id=2,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    model = Qwen3_5MoeForCausalLM(config).to(dtype)
    write_model_dir(directory)
    model.save_pretrained(directory)
    return sum(parameter.numel() for parameter in model.parameters())


def measure(side: str, generate: Generate, *, repeats: int) -> None:
    """One JSON line a batch size."""
    for batch in BATCHES:
        rates = []
        for repeat in range(-1, repeats):
            rng = random.Random(f"{batch}/{repeat}")
            prompts = [[rng.randrange(300, 4096) for _ in range(NUM_IN)] for _ in range(batch)]
            start = time.perf_counter()
            counts = generate(prompts)
            seconds = time.perf_counter() - start
            assert counts == [NUM_OUT] * batch, counts
            if repeat >= 0:
                rates.append(batch * NUM_OUT / seconds)
        print(json.dumps({"side": side, "batch": batch, "all": rates}), flush=True)


def run_draftmark(model: str, dtype: str, repeats: int) -> None:
    with Engine(model, dtype=dtype, max_context=512, max_running=16) as engine:

        def generate(prompts: list[list[int]]) -> list[int]:
            sampling = SamplingParams(temperature=0.0, max_tokens=NUM_OUT, ignore_eos=True)
            answers = engine.generate(prompts, sampling)
            assert not any(answer.usage.cached_tokens for answer in answers)
            return [len(answer.token_ids) for answer in answers]

        measure("draftmark", generate, repeats=repeats)


def run_transformers(model: str, dtype: str, repeats: int) -> None:
    torch.set_num_threads(2)
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype)).eval()

    def generate(prompts: list[list[int]]) -> list[int]:
        ids = torch.tensor(prompts)
        with torch.inference_mode():
            out = loaded.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=NUM_OUT,
                min_new_tokens=NUM_OUT,
                do_sample=False,
                pad_token_id=0,
            )
        return [out.shape[1] - NUM_IN] * len(prompts)

    measure("transformers", generate, repeats=repeats)


def run_side(side: str, arguments: argparse.Namespace, model: str) -> dict[int, list[float]]:
    command = [sys.executable, __file__, "--side", side, "--model", model]
    command += ["--dtype", arguments.dtype, "--repeats", str(arguments.repeats)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-4000:])
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"side"')]
    return {row["batch"]: row["all"] for row in rows}


def compare(arguments: argparse.Namespace) -> bool:
    """Whether every target is met."""
    machine = describe_machine()
    rates: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "hybrid"
        size = write_model(directory, getattr(torch, arguments.dtype))
        for _ in range(arguments.rounds):
            for side in SIDES:
                for batch, found in run_side(side, arguments, str(directory)).items():
                    rates.setdefault((side, batch), []).extend(found)
    median = {key: statistics.median(found) for key, found in rates.items()}
    alone = median["transformers", 1]
    rows = []
    print(f"{size / 1e6:.1f} million parameters, {arguments.dtype}; tok/s")
    print("batch  draftmark  transformers  ratio  over one at a time  wanted")
    for batch in BATCHES:
        ours, theirs = (median[side, batch] for side in SIDES)
        ratio = ours / theirs
        wanted = TARGETS[batch]
        print(
            f"{batch:5} {ours:10.1f} {theirs:13.1f} {ratio:6.2f} {ours / alone:19.2f} {wanted:7.1f}"
        )
        rows.append({"batch": batch, "ours": ours, "theirs": theirs, "ratio": ratio})
    about = {"benchmark": "hybrid_cpu", "dtype": arguments.dtype, "parameters": size}
    print(json.dumps({**about, "rows": rows, "machine": machine}))
    return all(row["ratio"] >= TARGETS[row["batch"]] for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side is None:
        raise SystemExit(not compare(arguments))
    run = run_draftmark if arguments.side == "draftmark" else run_transformers
    run(arguments.model, arguments.dtype, arguments.repeats)


if __name__ == "__main__":
    main()
