"""Random requests with drafts and without, in float64: is any token another one?

Tiny random models of every family run in this process, cut into 1 to 4 stages, with the real
scheduler and runtime. A history is some requests that come and go at random while pools are too
small for all of them; the drafts are those of the model's head (random, or as good as a trained
one), of a look-up in the sequence, or of an oracle that errs at random. Every request must give
what it gives without drafts. What a history is hangs on its number and the seed alone, so that
`--first` goes on where another run ended. A condition that never occurred is an error as well.

Then the same models in float32 and bfloat16, with the kernels that a server would take: there an
answer may part from the plain one only where the two best logits are as good as equal.

    python benchmarks/speculation_soak.py [--requests 10000] [--minutes M] [--first 0] [--seed 0]
        [--narrow 200]
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec
import torch
from harness import print_result

from draftmark.core.request import FinishReason, Request
from draftmark.kernels.backends import Backends, choose
from draftmark.models.stage import Stage
from draftmark.runtime.mtp import MTPDrafter
from draftmark.runtime.ngram import NgramDrafter
from tests.cpu.runtime.harness import (
    CPU,
    VOCAB,
    Loop,
    make_run,
    make_stages,
    random_request,
)
from tests.cpu.runtime.speculation_harness import (
    make_fluent_stages,
    narrow_splits,
    verify_rows,
    wrong_requests,
)
from tests.cpu.runtime.test_windows import Oracle

CUTS = {
    1: [(3,)],
    2: [(1, 2), (2, 1)],
    3: [(1, 1, 1)],
    4: [(1, 1, 1, 1)],
}
FAMILIES = ("hybrid", "hybrid", "delta", "llama", "qwen3")
DRAFTERS = ("head", "fluent head", "oracle", "oracle", "look-up")
PER_HISTORY = 80
SAY_EVERY = 400
# Of the two best logits, in the plain run.
LARGEST_GAPS = {torch.float32: 1e-4, torch.bfloat16: 0.05}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One history, but for its requests."""

    number: int
    family: str
    layers: tuple[int, ...]
    drafter: str
    k: int
    cohorts: int
    depth: int
    lanes: str
    varies: bool  # how many drafts a step makes
    num_pages: int
    num_slots: int
    prefill_tokens: int
    num_snapshots: int | None
    share: float  # of the oracle's drafts that are right

    @classmethod
    def draw(cls, number: int, rng: random.Random) -> Setting:
        family = rng.choice(FAMILIES)
        is_hybrid = family in ("hybrid", "delta")
        num_stages = rng.randint(1, 4)
        cohorts = rng.choice([num_stages, num_stages, rng.randint(1, 4)])
        # The smallest pools just hold one request of the whole context: none is refused.
        return cls(
            number=number,
            family=family,
            layers=rng.choice(CUTS[num_stages]),
            drafter=rng.choice(DRAFTERS),
            k=rng.randint(1, 5),
            cohorts=cohorts,
            depth=rng.choice([1, cohorts, cohorts + 1]),
            lanes="test" if num_stages > 1 and rng.random() < 0.1 else "local",
            varies=rng.random() < 0.5,
            num_pages=rng.choice([13, 20, 40, 100] if is_hybrid else [11, 16, 30, 100]),
            num_slots=rng.choice([3, 9, 17, 21]),
            prefill_tokens=rng.choice([5, 40, 64, 200]),
            num_snapshots=rng.choice([0, 2, 4, 8]) if is_hybrid else None,
            share=rng.choice([0.3, 0.7, 0.95]),
        )


@dataclass(slots=True)
class Tally:
    events: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    tokens: int = 0
    rounds: int = 0
    emitted: int = 0
    histories: int = 0
    problems: list[str] = field(default_factory=list)


@cache
def stages_of(family: str, layers: tuple[int, ...], drafter: str) -> list[Stage]:
    if drafter == "fluent head":
        return make_fluent_stages(layers, family)
    return make_stages(layers, family, backends=Backends(), with_mtp=drafter == "head")


def make_requests(
    rng: random.Random, k: int, *, first: int, prefixes: list[list[int]]
) -> list[Request]:
    """Half of a history's."""
    requests = []
    for number in range(first, first + PER_HISTORY // 2):
        request = random_request(number, rng, prefixes=prefixes, is_hungry=rng.random() < 0.4)
        if rng.random() < 0.15:
            prompt = [rng.randrange(VOCAB) for _ in range(rng.choice([1, k + 1]))]
            request = msgspec.structs.replace(request, prompt_ids=prompt)
        if rng.random() < 0.2:
            sampling = msgspec.structs.replace(request.sampling, draft_tokens=rng.randint(0, k))
            request = msgspec.structs.replace(request, sampling=sampling)
        requests.append(request)
    return requests


def follow(
    requests: list[Request], rng: random.Random, plain: dict[int, list[int]], earlier: list[Request]
) -> list[Request]:
    """Some of them become the next turn of an earlier one."""
    followed = []
    for request in requests:
        if rng.random() < 0.4:
            before = rng.choice(earlier)
            prompt = (before.prompt_ids + plain[before.id] + request.prompt_ids[-5:])[:95]
            request = msgspec.structs.replace(request, prompt_ids=prompt)
        followed.append(request)
    return followed


def plain_tokens(setting: Setting, requests: list[Request]) -> dict[int, list[int]]:
    """Without drafts, on one stage, with all pages and slots that are wanted."""
    stages = stages_of(setting.family, (sum(setting.layers),), setting.drafter)
    sizes = {"num_pages": 201, "num_slots": 21}
    loop = Loop(make_run(*stages, **sizes), **sizes, num_snapshots=0)
    loop.add(*requests)
    loop.finish()
    return {request.id: loop.answers[request.id].tokens for request in requests}


def make_drafter(
    setting: Setting, requests: list[Request], plain: dict[int, list[int]]
) -> Callable[..., Any]:
    match setting.drafter:
        case "oracle":
            answers = {r.id: r.prompt_ids + plain[r.id] for r in requests}
            oracle = Oracle(answers, share=setting.share, seed=setting.number)
            return lambda seat: oracle
        case "look-up":
            return NgramDrafter
        case _:
            return MTPDrafter


def play(setting: Setting, rng: random.Random, tally: Tally) -> None:
    prefixes = [[rng.randrange(VOCAB) for _ in range(n)] for n in (16, 33, 66)]
    requests = make_requests(rng, setting.k, first=0, prefixes=prefixes)
    plain = plain_tokens(setting, requests)
    more = make_requests(rng, setting.k, first=len(requests), prefixes=prefixes)
    more = follow(more, rng, plain, requests)
    plain |= plain_tokens(setting, more)
    requests += more
    sizes = {
        "num_pages": setting.num_pages,
        "num_slots": setting.num_slots,
        "prefill_tokens": setting.prefill_tokens,
        "cohorts": setting.cohorts,
        "max_drafts": setting.k,
    }
    run = make_run(
        *stages_of(setting.family, setting.layers, setting.drafter),
        **sizes,
        lanes=setting.lanes,
        num_snapshots=setting.num_snapshots or 0,
        make_drafter=make_drafter(setting, requests, plain),
    )
    loop = Loop(
        run,
        **sizes,
        depth=setting.depth,
        num_snapshots=setting.num_snapshots,
        drafts_from_ids=setting.drafter == "look-up",
    )
    if setting.varies:
        counts, chosen = loop.scheduler._draft_count, random.Random(setting.number)
        counts.choose = lambda *rows, **context: chosen.randint(0, setting.k)  # type: ignore[method-assign]
    cut_short, waiting = 0, list(requests)
    try:
        while waiting or loop.scheduler.has_work:
            while waiting and rng.random() < 0.4:
                loop.add(waiting.pop(0))
            if rng.random() < 0.02:
                number = rng.randrange(len(requests))
                answer = loop.answers.get(number)
                cut_short += answer is not None and bool(answer.tokens) and answer.end is None
                loop.abort(number)
            loop.step()
        wrong = wrong_requests(loop, requests, plain)
        tally.problems += [f"{setting}: request {number} gave other tokens" for number in wrong]
        stats = loop.scheduler.stats()
        if stats.slots_free != stats.slots_total:
            tally.problems.append(f"{setting}: slots are not back")
        if stats.pages_free + stats.pages_cached != stats.pages_total:
            tally.problems.append(f"{setting}: pages are not back")
    except (AssertionError, IndexError, RuntimeError) as error:
        tally.problems.append(f"{setting}: {type(error).__name__}: {error}")
    finally:
        run.close()
    tally.histories += 1
    tally.requests += len(requests)
    note(setting, loop, requests, tally, cut_short)


def note(
    setting: Setting, loop: Loop, requests: list[Request], tally: Tally, cut_short: int
) -> None:
    """Count what happened, by name."""
    events, stats, rows = tally.events, loop.scheduler.stats(), verify_rows(loop)
    plans, answers = loop.plans, loop.answers
    admits = [admit for plan in plans for admit in plan.admits]
    tally.tokens += sum(len(answer.tokens) for answer in answers.values())
    tally.rounds += len(rows)
    tally.emitted += sum(len(row.emitted) for row in rows)
    for name in (
        f"family {setting.family}",
        f"{len(setting.layers)} stages",
        f"k = {setting.k}",
        f"drafts: {setting.drafter}",
        f"{setting.cohorts} cohorts",
        f"lanes {setting.lanes}",
    ):
        events[name] += len(requests)
    ends = [answer.end.finish for answer in answers.values() if answer.end is not None]
    several = [row for row in rows if row.done and len(row.emitted) > 1]
    stop_ids = _stop_ids(loop, requests)
    events["ends by stop id"] += ends.count(FinishReason.STOP)
    events["ends by length"] += ends.count(FinishReason.LENGTH)
    for row in several:
        is_stop = row.emitted[-1] in stop_ids[row.slot, row.generation]
        is_bonus = len(row.emitted) == row.drafted + 1
        events["stop ids inside a run" if is_stop else "lengths inside a run"] += not is_bonus
        events["ends at the bonus token"] += is_bonus
    events["windows with a rejection"] += sum(len(r.emitted) <= r.drafted for r in rows)
    events["windows accepted whole"] += sum(0 < r.drafted < len(r.emitted) for r in rows)
    events["rows without drafts"] += sum(r.drafted == 0 for r in rows)
    counts = [plan.draft_k for plan in plans]
    events["changes of k"] += sum(a != b for a, b in itertools.pairwise(counts))
    events["chunks that are not the last"] += sum(not r.is_last for p in plans for r in p.prefill)
    events["cached tokens"] += stats.cached_tokens
    events["states restored"] += sum(admit.restore >= 0 for admit in admits)
    events["preemptions"] += stats.preemptions
    events["aborts under way"] += cut_short
    events["slots used again"] += sum(admit.generation > 1 for admit in admits)
    for request in requests:
        sampling = request.sampling
        events["prompts of one token"] += len(request.prompt_ids) == 1
        events["prompts of a window"] += len(request.prompt_ids) == setting.k + 1
        events["greedy"] += sampling.temperature == 0
        events["sampled"] += sampling.temperature > 0
        events["sampled and truncated"] += sampling.temperature > 0 and (
            sampling.top_p < 1 or sampling.top_k > 0 or sampling.min_p > 0
        )
        events["penalties"] += sampling.has_penalties
        events["biases"] += bool(sampling.logit_bias)
        events["min_tokens"] += sampling.min_tokens > 0
        events["draft_tokens of its own"] += sampling.draft_tokens is not None


def _stop_ids(loop: Loop, requests: list[Request]) -> dict[tuple[int, int], tuple[int, ...]]:
    by_id = {request.id: request.stop_ids for request in requests}
    admits = [admit for plan in loop.plans for admit in plan.admits]
    return {(admit.slot, admit.generation): by_id[admit.request] for admit in admits}


def run_narrow(count: int, tally: Tally) -> list[dict[str, object]]:
    """First differences in narrow formats, with the fastest kernels there are."""
    found: list[dict[str, object]] = []
    for dtype, largest in LARGEST_GAPS.items():
        backends, gaps, compared, asked = choose(CPU, dtype=dtype), [], 0, 0
        while asked < count:
            splits, tokens = narrow_splits(
                ("hybrid", "llama")[asked // 20 % 2],
                dtype=dtype,
                k=1 + asked // 20 % 5,
                seed=asked,
                num_requests=20,
                backends=backends,
            )
            asked += 20
            compared += tokens
            gaps += [split.gap for split in splits]
            tally.problems += [f"{dtype}: {s} is no tie" for s in splits if s.gap >= largest]
        found.append(
            {
                "format": str(dtype).removeprefix("torch."),
                "requests": asked,
                "tokens compared": compared,
                "answers that part": len(gaps),
                "largest gap": f"{max(gaps, default=0.0):.2g}",
                "allowed": f"{largest:g}",
            }
        )
    return found


EXPECTED = (
    *(f"family {family}" for family in sorted(set(FAMILIES))),
    *(f"{count} stages" for count in CUTS),
    *(f"k = {k}" for k in range(1, 6)),
    *(f"drafts: {drafter}" for drafter in sorted(set(DRAFTERS))),
    *(f"{count} cohorts" for count in range(1, 5)),
    "lanes local",
    "lanes test",
    "ends by stop id",
    "ends by length",
    "stop ids inside a run",
    "lengths inside a run",
    "ends at the bonus token",
    "windows with a rejection",
    "windows accepted whole",
    "rows without drafts",
    "changes of k",
    "chunks that are not the last",
    "cached tokens",
    "states restored",
    "preemptions",
    "aborts under way",
    "slots used again",
    "prompts of one token",
    "prompts of a window",
    "greedy",
    "sampled",
    "sampled and truncated",
    "penalties",
    "biases",
    "min_tokens",
    "draft_tokens of its own",
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--first", type=int, default=0, help="number of the first history")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--narrow", type=int, default=200, help="requests in each narrow format")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tally, began, number = Tally(), time.monotonic(), arguments.first
    while tally.requests < arguments.requests:
        if time.monotonic() - began > 60 * arguments.minutes:
            break
        rng = random.Random(f"{arguments.seed} {number}")
        play(Setting.draw(number, rng), rng, tally)
        number += 1
        if tally.requests % SAY_EVERY == 0:
            rate = tally.requests / (time.monotonic() - began)
            print(
                f"history {number}: {tally.requests} requests, {rate:.1f} a second, "
                f"{len(tally.problems)} problems",
                file=sys.stderr,
                flush=True,
            )
    seconds = time.monotonic() - began
    narrow = run_narrow(arguments.narrow, tally) if arguments.narrow else []
    missing = [name for name in EXPECTED if not tally.events[name]]
    tally.problems += [f"never occurred: {name}" for name in missing]
    print_result([{"condition": name, "times": tally.events[name]} for name in EXPECTED])
    if narrow:
        print_result(narrow)
    row: dict[str, object] = {
        "requests": tally.requests,
        "tokens": tally.tokens,
        "rounds": tally.rounds,
        "tokens a round": f"{tally.emitted / max(tally.rounds, 1):.2f}",
        "problems": len(tally.problems),
        "seconds": seconds,
    }
    print_result(
        [row],
        benchmark="speculation_soak",
        seed=arguments.seed,
        histories=[arguments.first, number],
        problems=tally.problems[:20],
    )
    for problem in tally.problems[:20]:
        print(problem, file=sys.stderr)
    if tally.problems:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
