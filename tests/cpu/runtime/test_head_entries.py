"""The head's entries of prefixes, in float64: drafts do not depend on where the prefix came from.

What the head lacks costs acceptance and never a token, so tokens cannot show it: the drafts must.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from draftmark.core.request import Request, SamplingParams
from draftmark.runtime.drafting import Drafting, Seat
from draftmark.runtime.mtp import MTPDrafter
from draftmark.runtime.relay import PACKED_DRAFTS, PACKED_LENGTH, PACKED_TOKEN
from draftmark.scheduler.draft_count import DraftCount
from tests.cpu.runtime.harness import VOCAB, Loop, make_run, make_stages

K = 3


class Recorded:
    """A head, and what it drafted: request -> length of the sequence -> drafts."""

    def __init__(self, seat: Seat) -> None:
        self._drafter = MTPDrafter(seat)
        self._requests: dict[int, int] = {}
        self.drafts: dict[int, dict[int, list[int]]] = {}

    def draft(self, step: Drafting) -> None:
        for admit in step.plan.admits:
            self._requests[admit.slot] = admit.request
        self._drafter.draft(step)
        if step.packed is None:
            return
        for row, packed in zip(step.plan.sampling, step.packed.tolist(), strict=True):
            drafts = self.drafts.setdefault(self._requests[row.slot], {})
            first = PACKED_TOKEN + 1
            drafts[packed[PACKED_LENGTH]] = packed[first : first + packed[PACKED_DRAFTS]]


def make_loop(
    family: str, *, prefill_tokens: int = 64, stages: tuple[int, ...] = (3,)
) -> tuple[Loop, Recorded]:
    made: list[Recorded] = []

    def make_drafter(seat: Seat) -> Recorded:
        made.append(Recorded(seat))
        return made[-1]

    snapshots = 4 if family == "hybrid" else 0
    sizes: dict[str, Any] = {
        "prefill_tokens": prefill_tokens,
        "cohorts": len(stages),
        "max_drafts": K,
    }
    run = make_run(
        *make_stages(stages, family, with_mtp=True),
        lanes="test" if len(stages) > 1 else "local",
        num_snapshots=snapshots,
        make_drafter=make_drafter,
        **sizes,
    )
    loop = Loop(run, num_snapshots=snapshots or None, **sizes)
    (recorded,) = made
    return loop, recorded


def request(number: int, prompt: list[int], **sampling: Any) -> Request:
    params = SamplingParams(**{"temperature": 0.0, "max_tokens": 24, **sampling})
    return Request(id=number, prompt_ids=prompt, sampling=params, seed=1)


def prompt_of(length: int, *, salt: int = 1) -> list[int]:
    return [(7 * salt + n * n * 5 + n) % VOCAB for n in range(length)]


@pytest.mark.parametrize("stages", [(3,), (1, 2)])
@pytest.mark.parametrize("prefill_tokens", [64, 7])
@pytest.mark.parametrize("family", ["llama", "hybrid"])
def test_a_cached_prefix_drafts_as_a_fresh_one(
    family: str, prefill_tokens: int, stages: tuple[int, ...]
) -> None:
    loop, recorded = make_loop(family, prefill_tokens=prefill_tokens, stages=stages)
    shared = prompt_of(64)
    for number, tail in enumerate(([3], [3], [5, 9, 4], [5, 9, 4])):
        # The last of each pair begins behind what the first left; the second pair behind both.
        loop.add(request(number, shared + tail))
        loop.finish()
    fresh, fresh_record = make_loop(family, prefill_tokens=prefill_tokens, stages=stages)
    fresh.add(request(9, [*shared, 5, 9, 4]))
    fresh.finish()
    assert loop.scheduler.stats().cached_tokens >= 2 * 64
    assert recorded.drafts[1] == recorded.drafts[0]
    assert recorded.drafts[2] == recorded.drafts[3] == fresh_record.drafts[9]
    assert any(recorded.drafts[0].values())


def test_answers_leave_their_entries_too() -> None:
    """The next turn of a chat begins behind the answer of the last one."""
    loop, recorded = make_loop("llama")
    first = prompt_of(20)
    loop.add(request(0, first))
    loop.finish()
    second = first + loop.answers[0].tokens + [1, 2]
    loop.add(request(1, second))
    loop.finish()
    assert loop.scheduler.stats().cached_tokens == 32
    fresh, fresh_record = make_loop("llama")
    fresh.add(request(1, second))
    fresh.finish()
    assert recorded.drafts[1] == fresh_record.drafts[1]


def test_a_request_has_no_more_drafts_than_it_asked_for() -> None:
    loop, recorded = make_loop("llama")
    wanted = {0: 0, 1: 1, 2: 2, 3: None, 4: 8}
    for number, most in wanted.items():
        loop.add(request(number, prompt_of(9, salt=number), draft_tokens=most))
    loop.finish()
    for number, most in wanted.items():
        counts = {len(drafts) for drafts in recorded.drafts[number].values()}
        assert max(counts) == (K if most is None else min(most, K))
    drafted = {row.slot: row.drafted for result in loop.results for row in result.rows}
    assert max(drafted.values()) <= K


def choose(monkeypatch: pytest.MonkeyPatch, count: Callable[[], int]) -> None:
    monkeypatch.setattr(DraftCount, "choose", lambda self, cohort, rows, *, context: count())


@pytest.mark.parametrize("family", ["llama", "hybrid"])
def test_prompts_get_entries_in_steps_without_drafts(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    k = 0
    choose(monkeypatch, lambda: k)
    loop, recorded = make_loop(family, prefill_tokens=24)
    loop.add(request(0, [*prompt_of(64), 3]))
    loop.finish()
    assert not any(recorded.drafts[0].values())
    k = K
    loop.add(request(1, [*prompt_of(64), 3]))
    loop.finish()
    fresh, fresh_record = make_loop(family, prefill_tokens=24)
    fresh.add(request(1, [*prompt_of(64), 3]))
    fresh.finish()
    assert loop.scheduler.stats().cached_tokens == 64
    assert recorded.drafts[1] == fresh_record.drafts[1]


def test_answers_without_drafts_leave_no_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what follows them says from where on there are any, to the cache and to the device."""
    k = 0
    choose(monkeypatch, lambda: k)
    loop, _ = make_loop("llama")
    loop.add(request(0, prompt_of(20), max_tokens=30))
    loop.finish()
    k = K
    loop.add(request(1, prompt_of(20) + loop.answers[0].tokens + [1]))
    loop.finish()
    admits = [admit for plan in loop.plans for admit in plan.admits]
    assert [(a.cached, a.drafted_from) for a in admits] == [(0, 1), (48, 49)]
    loop.add(request(2, [*loop.answers[1].tokens, *prompt_of(20)]))
    loop.finish()


@pytest.mark.parametrize("family", ["llama", "hybrid"])
def test_a_count_that_changes_each_turn_changes_no_token(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stage,) = make_stages((3,), family)
    draw = random.Random(5)
    choose(monkeypatch, lambda: draw.choice([0, 0, 1, K]))
    loop, recorded = make_loop(family, prefill_tokens=24, stages=(1, 2))
    prompts = [[*prompt_of(64), n % 2] for n in range(3)] + [prompt_of(n, salt=n) for n in (1, 4)]
    requests = [request(n, prompt, max_tokens=40) for n, prompt in enumerate(prompts)]
    for one in requests:
        loop.add(one)
        for _ in range(9):
            loop.step()
    loop.finish()
    loop.check_answers(stage, requests)
    counts = {len(d) for drafts in recorded.drafts.values() for d in drafts.values()}
    assert counts == {0, 1, K}


def test_results_say_how_long_drafting_took() -> None:
    loop, _ = make_loop("llama")
    loop.add(request(0, prompt_of(9)))
    loop.finish()
    assert all(0 < result.draft_us <= result.run_us for result in loop.results)
    drafts = loop.scheduler.stats().drafts
    assert drafts is not None
    assert drafts.draft_us == sum(result.draft_us for result in loop.results)
