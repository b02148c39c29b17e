"""Coins that accept drafts: their rates, that they hang on seed and position alone, and that the
runtime asks the right ones."""

from __future__ import annotations

import math
import random
from collections import defaultdict

import pytest
import torch

from draftmark.core.request import FinishReason
from draftmark.core.synthetic import synthetic_mark
from draftmark.kernels.sample import noise, reference
from draftmark.runtime.drafting import Drafting
from draftmark.speculation.acceptance import count_emitted
from draftmark.speculation.synthetic import SyntheticAcceptance, coins
from tests.cpu.runtime.harness import VOCAB, Loop, make_request, make_run, make_stages

CPU = torch.device("cpu")
RATE = 0.777
LENGTHS = {1: 1.78, 2: 2.38, 3: 2.85, 4: 3.21, 5: 3.50}


def coin(seed: int, position: int) -> float:
    """In plain Python, from the noise of the id that no token has: Gumbel = -log(-log(1 - v))."""
    return 1 - math.exp(-math.exp(-reference.noise(seed, position, -1)))


def test_coins_are_uniform_and_their_own() -> None:
    """Of neighbouring positions and seeds, and of the noise that sampling draws there."""
    seeds, position = torch.arange(300), torch.arange(200).expand(300, 200)
    drawn = coins(seeds, position)
    bound = 4 / math.sqrt(drawn.numel())
    assert abs(drawn.mean() - 0.5) < bound * math.sqrt(1 / 12)
    keys = noise.row_keys(seeds.repeat_interleave(200), position.flatten())
    gumbel = noise.gumbel(keys, torch.tensor([[0, 1, VOCAB]])).T.reshape(3, 300, 200)
    pairs = [(drawn[:, 1:], drawn[:, :-1]), (drawn[1:], drawn[:-1]), *((drawn, g) for g in gumbel)]
    for one, other in pairs:
        both = torch.stack((one.flatten(), other.flatten()))
        assert abs(torch.corrcoef(both)[0, 1]) < bound
    for seed, place in ((0, 0), (-5 % 300, 7), (299, 199)):
        assert abs(drawn[seed, place] - coin(seed, place)) < 1e-12


@pytest.mark.parametrize("k", LENGTHS)
def test_the_mean_length_is_that_of_the_rates(k: int) -> None:
    """Within four standard errors, and the rounded figures of the rate."""
    rows = 40_000
    generator = torch.Generator().manual_seed(k)
    sampled, drafted = (
        torch.randint(VOCAB, (rows, width), generator=generator) for width in (k + 1, k)
    )
    num_drafts = torch.full((rows,), k)
    replaced = SyntheticAcceptance([RATE], max_drafts=k, device=CPU).replace(
        sampled,
        drafted,
        num_drafts=num_drafts,
        seeds=torch.arange(rows),
        position=100 + torch.arange(k + 1).expand(rows, k + 1),
        vocab_size=VOCAB,
    )
    emitted, _ = count_emitted(
        replaced, drafted, num_drafts=num_drafts, is_end=torch.zeros((rows, k + 1), dtype=bool)
    )
    expected = sum(RATE**place for place in range(k + 1))
    assert abs(expected - LENGTHS[k]) < 0.005
    lengths = emitted.double()
    assert abs(lengths.mean() - expected) < 4 * lengths.std() / math.sqrt(rows)


def test_what_stands_in_a_window() -> None:
    """Yes: the draft. No: what was sampled, or another id than the draft. Beyond the drafts of a
    row: what was sampled."""
    rng, rates, width = random.Random(3), (0.9, 0.5, 0.1), 4
    synthetic = SyntheticAcceptance(rates, max_drafts=3, device=CPU)
    for _ in range(50):
        sampled = [[rng.randrange(3) for _ in range(width)] for _ in range(8)]
        drafted = [[rng.randrange(3) for _ in range(width - 1)] for _ in range(8)]
        counts = [rng.randint(0, 3) for _ in range(8)]
        seeds = [rng.randrange(-(2**63), 2**63) for _ in range(8)]
        first = [rng.randrange(1000) for _ in range(8)]
        found = synthetic.replace(
            torch.tensor(sampled),
            torch.tensor(drafted),
            num_drafts=torch.tensor(counts),
            seeds=torch.tensor(seeds),
            position=torch.tensor(first)[:, None] + torch.arange(width),
            vocab_size=3,
        ).tolist()
        for row in range(8):
            for place in range(width):
                own = sampled[row][place]
                if place >= counts[row]:
                    assert found[row][place] == own
                    continue
                draft = drafted[row][place]
                if coin(seeds[row], first[row] + place) < rates[place]:
                    assert found[row][place] == draft
                else:
                    assert found[row][place] == (own if own != draft else (draft + 1) % 3)


class AnyDrafts:
    """Random ids, as many as may be."""

    def __init__(self) -> None:
        self._rng = random.Random(1)

    def draft(self, step: Drafting) -> None:
        if step.packed is None or step.plan.draft_k == 0:
            return
        rows, k = len(step.packed), step.plan.draft_k
        drafts = [[self._rng.randrange(VOCAB) for _ in range(k)] for _ in range(rows)]
        step.enter(torch.tensor(drafts), torch.full((rows,), k))


def windows_of(seed: int, *, num_prompt: int, max_tokens: int, k: int, rate: float) -> list[int]:
    """How many tokens each step of a request gives: the prompt's one, then windows."""
    end, length, windows = num_prompt + max_tokens, num_prompt + 1, [1]
    while length < end:
        accepted = 0
        while accepted < k and coin(seed, length + accepted) < rate:
            accepted += 1
        windows.append(min(accepted + 1, end - length))
        length += windows[-1]
    return windows


@pytest.mark.parametrize(
    ("stages", "batch", "k"), [((2,), 1, 3), ((2,), 6, 3), ((1, 1), 6, 5), ((1, 1, 1), 4, 1)]
)
def test_every_step_asks_the_coins_of_its_positions(
    stages: tuple[int, ...], batch: int, k: int
) -> None:
    """At any number of stages and rows: greedy ones and others, with chunks and preemption."""
    options = {"num_pages": 14, "prefill_tokens": 7, "num_slots": batch + 1}
    run = make_run(
        *make_stages(stages),
        **options,
        cohorts=len(stages),
        lanes="test" if len(stages) > 1 else "local",
        max_drafts=k,
        make_drafter=lambda seat: AnyDrafts(),
        synthetic_acceptance=(RATE,),
    )
    loop = Loop(run, **options, cohorts=len(stages), depth=len(stages) + 1, max_drafts=k)
    requests = [
        make_request(
            number,
            prompt=range(1, 2 + 5 * number),
            max_tokens=50,
            seed=-(7**number),
            temperature=number % 2,
        )
        for number in range(8)
    ]
    loop.add(*requests)
    loop.finish()
    found = defaultdict(list)
    owners: dict[int, int] = {}
    for plan, result in zip(loop.plans, loop.results, strict=True):
        owners |= {admit.slot: admit.request for admit in plan.admits}
        for row in result.rows:
            if row.emitted:
                found[owners[row.slot]].append(len(row.emitted))
    untouched = 0
    for request in requests:
        answer = loop.answers[request.id]
        assert answer.end is not None and answer.end.finish is FinishReason.LENGTH
        assert all(0 <= token < VOCAB for token in answer.tokens)
        wanted = windows_of(
            request.seed, num_prompt=len(request.prompt_ids), max_tokens=50, k=k, rate=RATE
        )
        assert sum(found[request.id]) == 50
        untouched += found[request.id] == wanted
    # A preempted row begins a window where it was taken up again.
    assert untouched >= 8 - loop.scheduler.stats().preemptions
    assert untouched > 3


def test_one_mark_for_all() -> None:
    assert synthetic_mark(()) == ""
    assert synthetic_mark((0.777,)).startswith("SYNTHETIC ACCEPTANCE 0.777: ")
    assert synthetic_mark((0.9, 0.5)).startswith("SYNTHETIC ACCEPTANCE 0.9,0.5: ")
