"""Windows of drafts in float64: whatever is drafted, the tokens are those of plain decoding.

The drafts are made by an oracle that knows the plain answers and errs at random: any number of
drafts a row, right, wrong, or right after a wrong one.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from draftmark.core.request import FinishReason, Request
from draftmark.kernels.backends import Backends
from draftmark.models.stage import Stage
from draftmark.runtime.drafting import Drafting
from draftmark.runtime.mtp import MTPDrafter
from draftmark.runtime.relay import PACKED_LENGTH
from tests.cpu.runtime.harness import VOCAB, Loop, make_run, make_stages, random_request


class Oracle:
    """Drafts from `answers` (request -> prompt and plain output), each right with `share`."""

    def __init__(self, answers: dict[int, list[int]], *, share: float, seed: int) -> None:
        self._answers, self._share, self._rng = answers, share, random.Random(seed)
        self._requests: dict[int, int] = {}
        self.num_drafted = 0

    def draft(self, step: Drafting) -> None:
        for admit in step.plan.admits:
            self._requests[admit.slot] = admit.request
        if step.packed is None:
            return
        rows = [row.slot for row in step.plan.sampling]
        k = step.plan.draft_k
        drafts, counts = torch.zeros((len(rows), k), dtype=torch.int64), []
        for index, slot in enumerate(rows):
            length = int(step.packed[index, PACKED_LENGTH])
            known = self._answers[self._requests[slot]][length + 1 :]
            count = self._rng.randint(0, k)
            for column in range(k):
                is_right = column < len(known) and self._rng.random() < self._share
                drafts[index, column] = known[column] if is_right else self._rng.randrange(VOCAB)
            counts.append(count)
            self.num_drafted += count
        step.enter(drafts, torch.tensor(counts))


def plain_answers(stage: Stage, requests: list[Request]) -> dict[int, list[int]]:
    """Prompt and output of each request, alone with no drafts and roomy pools. Nothing is taken
    from the cache: states are not kept there."""
    loop = Loop(make_run(stage), num_snapshots=0)
    answers = {}
    for request in requests:
        loop.add(request)
        loop.finish()
        answers[request.id] = request.prompt_ids + loop.answers[request.id].tokens
    return answers


def make_history(
    seed: int, *, num_requests: int
) -> tuple[random.Random, list[Request], dict[str, Any]]:
    rng = random.Random(seed)
    sizes = {
        "num_pages": rng.choice([9, 10, 14, 40]),
        "num_slots": rng.choice([3, 5, 9]),
        "prefill_tokens": rng.choice([3, 16, 64]),
    }
    prefixes = [[rng.randrange(VOCAB) for _ in range(n)] for n in (16, 33)]
    is_hungry = sizes["num_pages"] <= 10
    requests = [
        random_request(i, rng, prefixes=prefixes, is_hungry=is_hungry) for i in range(num_requests)
    ]
    return rng, requests, sizes


def run_history(
    family: str,
    stages: tuple[int, ...],
    seed: int,
    *,
    k: int,
    cohorts: int = 1,
    num_requests: int = 10,
    with_mtp: bool = False,
) -> tuple[Loop, Oracle]:
    """With drafts from an oracle, or from a random MTP head."""
    rng, requests, sizes = make_history(seed, num_requests=num_requests)
    (whole,) = make_stages((sum(stages),), family)
    (fast,) = make_stages((sum(stages),), family, backends=Backends())
    oracle = Oracle(plain_answers(fast, requests), share=0.7, seed=seed)
    snapshots = 4 if family in ("hybrid", "delta") else 0
    run = make_run(
        *make_stages(stages, family, backends=Backends(), with_mtp=with_mtp),
        **sizes,
        cohorts=cohorts,
        lanes="test" if len(stages) > 1 else "local",
        num_snapshots=snapshots,
        max_drafts=k,
        make_drafter=MTPDrafter if with_mtp else lambda seat: oracle,
    )
    loop = Loop(
        run,
        **sizes,
        depth=cohorts + rng.choice([0, 1]),
        cohorts=cohorts,
        num_snapshots=snapshots or None,
        max_drafts=k,
    )
    waiting = list(requests)
    while waiting or loop.scheduler.has_work:
        while waiting and rng.random() < 0.4:
            loop.add(waiting.pop())
        if rng.random() < 0.03:
            loop.abort(rng.randrange(num_requests))
        loop.step()
    loop.check_answers(whole, requests)
    run.close()
    return loop, oracle


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("family", ["llama", "hybrid"])
def test_any_drafts_give_the_tokens_of_plain_decoding(family: str, k: int) -> None:
    loop, oracle = run_history(family, (3,), seed=k, k=k)
    emitted = [len(row.emitted) for result in loop.results for row in result.rows]
    assert max(emitted) > 1 and oracle.num_drafted > 50


@pytest.mark.parametrize("stages", [(1, 2), (1, 1, 1)])
def test_any_drafts_at_any_number_of_stages(stages: tuple[int, ...]) -> None:
    run_history("hybrid", stages, seed=7, k=3, cohorts=len(stages))


@pytest.mark.parametrize("family", ["llama", "hybrid"])
@pytest.mark.parametrize(("stages", "k"), [((3,), 1), ((3,), 4), ((1, 2), 3)])
def test_a_head_of_the_model_changes_no_token(family: str, stages: tuple[int, ...], k: int) -> None:
    loop, _ = run_history(family, stages, seed=k, k=k, cohorts=len(stages), with_mtp=True)
    rows = [row for result in loop.results for row in result.rows]
    assert any(len(row.emitted) > 1 for row in rows)


def test_ends_inside_accepted_runs() -> None:
    """Stop ids and lengths fall on every place of a window."""
    loop, _ = run_history("llama", (2,), seed=11, k=5, num_requests=16)
    ends = [
        (len(row.emitted), answer.end.finish)
        for result in loop.results
        for row in result.rows
        if row.done and row.emitted
        for answer in loop.answers.values()
        if answer.end is not None and answer.tokens and answer.tokens[-1] == row.emitted[-1]
    ]
    assert {FinishReason.STOP, FinishReason.LENGTH} <= {finish for _, finish in ends}
    assert any(count > 1 for count, _ in ends)


def test_the_histories_preempt_and_hit_the_cache() -> None:
    """Or the tests above would prove little."""
    loops = [run_history("llama", (2,), seed=seed, k=3)[0] for seed in (1, 3, 4)]
    stats = [loop.scheduler.stats() for loop in loops]
    assert sum(s.preemptions for s in stats) >= 3
    assert sum(s.cached_tokens for s in stats) >= 50
