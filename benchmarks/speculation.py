"""Output tok/s of chat with drafts and without: an engine a side, all up at once, in turn.

    python benchmarks/speculation.py --model DIR [--drafts 0 3] [--batches 1 4 16] [--rounds 5]

A side is a number of drafts, 0 for `--draft none`, or `auto`. Every round has prompts of its own
from the generators of `tiny`'s training (held-out arithmetic problems, and small talk), the same
for all sides, whose order turns; greedy, answers end by themselves. `batch` is how many are in
flight. tok/s are medians over rounds, prompts included; the ratio is the median of each round's.

What a step takes comes from further engines whose steps are recorded (`--record-plans`): medians of
steps of exactly `batch` rows and no prompt, `verify_ms` without the part that makes drafts. Prints
a table and, last, one JSON line; ends with status 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import print_result

from draftmark import AsyncEngine
from draftmark.core.recording import open_recording
from draftmark.core.step import StepPlan, StepResult
from training.tiny.conversation import Split
from training.tiny.data.arithmetic import arithmetic_conversation
from training.tiny.data.small_talk import small_talk_conversation

# Of the tok/s without drafts, by batch: what drafts must at least give, and which side is asked.
TARGETS = {1: ("3", 1.5), 16: ("auto", 0.97)}
NO_DRAFTS = "0"
_MAX_TOKENS, _PROMPTS = 256, 16
# Of four prompts.
_PROBLEMS = 3

Messages = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Of recorded steps: tokens that a row emits in one, and milliseconds."""

    tokens: float
    verify_ms: float
    draft_ms: float


def prompts_of(seed: str, count: int) -> list[Messages]:
    draw = random.Random(seed)
    prompts = []
    for number in range(count):
        make = arithmetic_conversation if number % 4 < _PROBLEMS else small_talk_conversation
        conversation = make(draw, Split.HELD_OUT, thinking=True)
        prompts.append([dict(message) for message in conversation.messages[:-1]])
    return prompts


def flags_of(side: str) -> dict[str, Any]:
    if side == NO_DRAFTS:
        return {"draft": "none"}
    return {"draft": "mtp", "draft_tokens": None if side == "auto" else int(side)}


async def ask(engine: AsyncEngine, prompts: list[Messages], *, batch: int) -> float:
    """tok/s."""
    gate = asyncio.Semaphore(batch)

    async def one(messages: Messages) -> int:
        async with gate:
            answer = await engine.chat(messages, temperature=0.0, max_tokens=_MAX_TOKENS)
            return len(answer.token_ids)

    began = time.perf_counter()
    counts = await asyncio.gather(*map(one, prompts))
    return sum(counts) / (time.perf_counter() - began)


async def measure(
    arguments: argparse.Namespace, options: dict[str, Any]
) -> dict[tuple[int, str], list[float]]:
    """tok/s of each round by batch and side."""
    rates: dict[tuple[int, str], list[float]] = {}
    async with AsyncExitStack() as stack:
        engines = {
            side: await stack.enter_async_context(
                AsyncEngine(arguments.model, **options, **flags_of(side))
            )
            for side in arguments.drafts
        }
        for batch in arguments.batches:
            for number in range(-1, arguments.rounds):
                prompts = prompts_of(f"{batch}/{number}", max(_PROMPTS, 3 * batch))
                order = deque(arguments.drafts)
                order.rotate(number)
                for side in order:
                    rate = await ask(engines[side], prompts, batch=batch)
                    if number >= 0:
                        rates.setdefault((batch, side), []).append(rate)
    return rates


async def record(arguments: argparse.Namespace, options: dict[str, Any]) -> dict[Any, Steps]:
    """By batch and side."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for side in arguments.drafts:
            path = Path(folder) / side
            own = {**options, **flags_of(side), "record_plans": str(path)}
            async with AsyncEngine(arguments.model, **own) as engine:
                first = engine.stats.steps
                for batch in arguments.batches:
                    prompts = prompts_of(f"{batch}/recorded", max(_PROMPTS, 3 * batch))
                    await ask(engine, prompts, batch=batch)
            for batch in arguments.batches:
                if (steps := steps_of(path, skipped=first, batch=batch)) is not None:
                    found[batch, side] = steps
    return found


def steps_of(path: Path, *, skipped: int, batch: int) -> Steps | None:
    """Of steps of `batch` rows alone; None where there was none."""
    results = [
        result
        for plan, result in _answered(path)
        if len(plan.verify) == batch and not plan.prefill and plan.step >= skipped
    ]
    if not results:
        return None
    rows = [row for result in results for row in result.rows if row.emitted]
    return Steps(
        tokens=sum(len(row.emitted) for row in rows) / len(rows),
        verify_ms=statistics.median(result.run_us - result.draft_us for result in results) / 1000,
        draft_ms=statistics.median(result.draft_us for result in results) / 1000,
    )


def _answered(path: Path) -> Iterator[tuple[StepPlan, StepResult]]:
    plans: dict[int, StepPlan] = {}
    for said in open_recording(path).steps:
        if isinstance(said, StepPlan):
            plans[said.step] = said
        else:
            yield plans.pop(said.step), said


def rows_of(
    rates: dict[tuple[int, str], list[float]], steps: dict[Any, Steps]
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for (batch, side), own in rates.items():
        plain = rates[batch, NO_DRAFTS]
        taken = steps.get((batch, side))
        ratio = statistics.median(a / b for a, b in zip(own, plain, strict=True))
        rows.append(
            {
                "batch": batch,
                "drafts": side,
                "tok/s": statistics.median(own),
                "least": min(own),
                "most": max(own),
                "ratio": f"{ratio:.2f}",
                "tokens a step": None if taken is None else f"{taken.tokens:.2f}",
                "verify_ms": None if taken is None else f"{taken.verify_ms:.2f}",
                "draft_ms": None if taken is None else f"{taken.draft_ms:.2f}",
            }
        )
    return rows


def is_met(rows: list[dict[str, object]]) -> bool:
    for row in rows:
        side, least = TARGETS.get(int(str(row["batch"])), ("", 0.0))
        if row["drafts"] == side and float(str(row["ratio"])) < least:
            return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--drafts", nargs="+", default=[NO_DRAFTS, "3"])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", help="auto by default")
    parser.add_argument("--threads", type=int, help="of each worker; all cores by default")
    arguments = parser.parse_args()
    if NO_DRAFTS not in arguments.drafts:
        parser.error("the sides lack 0, which the others are compared with")
    options: dict[str, Any] = {"max_context": 1024, "max_running": 16}
    options |= {"kv_pool_tokens": 32768}
    options |= {name: value for name in ("dtype", "threads") if (value := getattr(arguments, name))}
    rates = asyncio.run(measure(arguments, options))
    rows = rows_of(rates, asyncio.run(record(arguments, options)))
    print_result(rows, benchmark="speculation", **vars(arguments))
    sys.exit(0 if is_met(rows) else 1)


if __name__ == "__main__":
    main()
