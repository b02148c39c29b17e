"""Logic equality in float64: whatever a request runs beside, it gives what it gives alone.

No tolerance and no tie rule. Pools begin as NaN and staging is overwritten on release.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from draftmark.core.request import FinishReason, Request
from draftmark.core.step import Admit, PageDelta, PrefillRow, RowSampling, StepPlan, VerifyRow
from draftmark.kernels.backends import Backends
from draftmark.models.stage import Stage
from tests.cpu.runtime.harness import (
    VOCAB,
    Loop,
    check_alone,
    make_request,
    make_run,
    make_stage,
    random_request,
)


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def stage(request: pytest.FixtureRequest) -> Stage:
    return make_stage(request.param)


@pytest.fixture(scope="module")
def llama() -> Stage:
    """With the fast backends: half the time."""
    return make_stage("llama", backends=Backends())


def run_history(stage: Stage, seed: int, *, num_requests: int = 10, on_loop=None) -> Loop:
    """Random arrivals, aborts and sizes; most pools are too small for all that runs."""
    rng = random.Random(seed)
    sizes = {
        "num_pages": rng.choice([9, 9, 10, 14, 40]),
        "num_slots": rng.choice([3, 5, 9]),
        "prefill_tokens": rng.choice([3, 16, 64]),
    }
    loop = Loop(make_run(stage, **sizes), **sizes, depth=rng.choice([1, 2]))
    if on_loop is not None:
        on_loop(loop)
    prefixes = [[rng.randrange(VOCAB) for _ in range(n)] for n in (16, 33)]
    is_hungry = sizes["num_pages"] <= 10
    requests = [
        random_request(i, rng, prefixes=prefixes, is_hungry=is_hungry) for i in range(num_requests)
    ]
    waiting = list(requests)
    while waiting or loop.scheduler.has_work:
        while waiting and rng.random() < 0.4:
            loop.add(waiting.pop())
        if rng.random() < 0.03:
            loop.abort(rng.randrange(num_requests))
        loop.step()
    loop.check_answers(stage, requests)
    return loop


@pytest.mark.parametrize("seed", range(2))
def test_any_history_gives_what_each_request_gives_alone(stage: Stage, seed: int) -> None:
    run_history(stage, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 104))
def test_many_more_histories(stage: Stage, seed: int) -> None:
    run_history(stage, seed, num_requests=25)


@pytest.mark.slow
def test_the_histories_preempt_hit_the_cache_and_end_on_the_device(llama: Stage) -> None:
    """With the fast backends too; and or the tests above would prove little."""
    loops = [run_history(llama, seed) for seed in (1, 3, 4, 5, 7)]
    stats = [loop.scheduler.stats() for loop in loops]
    assert sum(s.preemptions for s in stats) >= 5
    assert sum(s.cached_tokens for s in stats) >= 300
    ends = [answer.end.finish for loop in loops for answer in loop.answers.values() if answer.end]
    assert ends.count(FinishReason.STOP) >= 5 and ends.count(FinishReason.LENGTH) >= 10
    inert = [
        row for loop in loops for result in loop.results for row in result.rows if not row.emitted
    ]
    assert all(row.done for row in inert) and len(inert) >= 5


# -- chunks, by hand ------------------------------------------------------------------------------

SAMPLING = RowSampling(11, 0.8, 0.95, 0, 0.0, 0.5, 0.2, 1.1, -1)


def run_chunks(stage: Stage, prompt: list[int], cuts: list[int], *, steps: int) -> list[int]:
    """Tokens of one request whose prompt is prefilled in chunks that end at `cuts`."""
    run = make_run(stage)
    end = len(prompt) + steps
    admit = Admit(1, 1, 5, 0, end, 0, (), SAMPLING, prompt, [])
    pages = list(range(7, 17))
    bounds = [0, *cuts, len(prompt)]
    tokens: list[int] = []
    step = 0
    for start, stop in itertools.pairwise(bounds):
        is_last = stop == len(prompt)
        row = PrefillRow(
            1, 1, start, prompt[start:stop], -1 if is_last else prompt[stop], samples=is_last
        )
        admits, deltas = ([admit], [PageDelta(1, 1, 0, pages)]) if step == 0 else ([], [])
        plan = StepPlan(step, 0, 0, 0, admits, deltas, [row], [])
        for result in run.launch(plan).result().rows:
            tokens += result.emitted
        step += 1
    for _ in range(steps - 1):
        plan = StepPlan(step, 0, 0, 0, [], [], [], [VerifyRow(1, 1)])
        (result,) = run.launch(plan).result().rows
        tokens += result.emitted
        step += 1
    assert result.done and result.length == end - 1
    return tokens


def test_chunked_is_whole_at_every_split(stage: Stage) -> None:
    rng = random.Random(3)
    prompt = [rng.randrange(VOCAB) for _ in range(19)]
    whole = run_chunks(stage, prompt, [], steps=4)
    assert len(whole) == 4
    for cut in range(1, len(prompt)):
        assert run_chunks(stage, prompt, [cut], steps=4) == whole
    assert run_chunks(stage, prompt, list(range(1, len(prompt))), steps=4) == whole


def test_hit_is_miss(llama: Stage) -> None:
    rng = random.Random(8)
    prompt = [rng.randrange(VOCAB) for _ in range(50)]
    requests = [
        make_request(i, prompt=prompt, max_tokens=12, temperature=1.2, seed=i) for i in range(3)
    ]
    loop = Loop(make_run(llama))
    for request in requests:
        loop.add(request)
        loop.finish()
    assert loop.scheduler.stats().cached_tokens == 2 * 48
    loop.check_answers(llama, requests)


def test_preempted_is_not_preempted_with_penalties(llama: Stage) -> None:
    """Three sequences that outgrow six pages; the counts of the resumed ones are rebuilt."""
    requests = [_greedy_with_penalties(i) for i in range(3)]
    loop = Loop(make_run(llama, num_pages=7), num_pages=7)
    loop.add(*requests)
    loop.finish()
    assert loop.scheduler.stats().preemptions >= 1
    loop.check_answers(llama, requests)


def _greedy_with_penalties(request_id: int) -> Request:
    rng = random.Random(request_id)
    return make_request(
        request_id,
        prompt=[rng.randrange(VOCAB) for _ in range(20)],
        max_tokens=40,
        frequency_penalty=1.9,
        repetition_penalty=1.3,
    )


def test_same_seed_same_tokens_in_any_company(llama: Stage) -> None:
    rng = random.Random(21)
    subject = make_request(100, prompt=[5, 6, 7], max_tokens=20, temperature=1.5, seed=99)
    answers = []
    for company in (0, 1, 6):
        loop = Loop(make_run(llama))
        for i in range(company):
            loop.add(random_request(i, rng, prefixes=[[1, 2, 3]]))
        loop.add(subject)
        loop.finish()
        answers.append(loop.answers[100].tokens)
    assert answers[0] == answers[1] == answers[2]


# -- planted faults -------------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]


def _position_off_by_one(patch: pytest.MonkeyPatch) -> None:
    from draftmark.runtime import slots

    original = slots.SlotTables.batch

    def batch(self, plan, inputs, rows):
        return original(self, plan, inputs, rows + (rows > 20).long())

    patch.setattr(slots.SlotTables, "batch", batch)


def _stale_page_table(patch: pytest.MonkeyPatch) -> None:
    """Pages that are appended while a sequence runs do not arrive."""
    from draftmark.runtime import slots

    original = slots.SlotTables.apply

    def apply(self, inputs) -> None:
        if inputs.admits is None:
            inputs = replace(inputs, pages=None)
        original(self, inputs)

    patch.setattr(slots.SlotTables, "apply", apply)


def _forgotten_counts(patch: pytest.MonkeyPatch) -> None:
    """What a preempted sequence had emitted is not counted when it resumes."""
    from draftmark.runtime import sample_state

    original = sample_state._count
    patch.setattr(
        sample_state,
        "_count",
        lambda tables, counts: original(tables, replace(counts, output_ids=counts.output_ids[:0])),
    )


def _noise_of_the_row(patch: pytest.MonkeyPatch) -> None:
    from draftmark.kernels.sample import torch as plain

    original = plain.noise.row_keys

    def keys(seed: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return original(seed, position) + torch.arange(len(seed))

    patch.setattr(plain.noise, "row_keys", keys)


def _done_rows_go_on(patch: pytest.MonkeyPatch) -> None:
    """A slot that is done is run and emits as if it were not."""
    from draftmark.runtime import relay, slots

    original = slots.SlotState.apply_return

    def apply_return(self, packed: torch.Tensor) -> None:
        packed = packed.clone()
        packed[:, relay.PACKED_DONE] = 0
        original(self, packed)

    patch.setattr(slots.SlotState, "apply_return", apply_return)


def _no_end_on_the_device(patch: pytest.MonkeyPatch) -> None:
    from draftmark.runtime import sampler

    def never(self, token, window, *, facts) -> torch.Tensor:
        return torch.zeros_like(token, dtype=torch.bool)

    patch.setattr(sampler.Sampler, "_is_stop", never)


def _verify_reads_one_page_less(patch: pytest.MonkeyPatch) -> None:
    from draftmark.runtime import slots

    original = slots.SlotTables.batch

    def batch(self, plan, inputs, rows):
        given = original(self, plan, inputs, rows)
        pages = given.verify_pages.clone()
        pages[:, 1:] = pages[:, :-1].clone()
        return replace(given, verify_pages=pages)

    patch.setattr(slots.SlotTables, "batch", batch)


@pytest.mark.parametrize(
    "plant",
    [
        _position_off_by_one,
        _stale_page_table,
        _forgotten_counts,
        _noise_of_the_row,
        _done_rows_go_on,
        _no_end_on_the_device,
        _verify_reads_one_page_less,
    ],
)
def test_planted_faults_are_seen(
    llama: Stage, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in (5, 0, 1, 2, 3, 4):
            run_history(llama, seed, on_loop=_expect_no_overrun)


def _expect_no_overrun(loop: Loop) -> None:
    """Ends on the device leave nothing to drop: only aborts and host ends overrun."""
    commit = loop.scheduler.commit

    def checked(result):
        outputs = commit(result)
        if not loop.scheduler.stats().aborts:
            assert loop.scheduler.stats().overrun_tokens == 0
        return outputs

    loop.scheduler.commit = checked


def test_a_wrong_generation_is_a_crash(llama: Stage) -> None:
    run = make_run(llama)
    admit = Admit(1, 3, 5, 0, 20, 0, (), SAMPLING)
    delta = PageDelta(1, 3, 0, [4])
    row = PrefillRow(1, 3, 0, [1, 2], -1, samples=True)
    run.launch(StepPlan(0, 0, 0, 0, [admit], [delta], [row], [])).result()
    with pytest.raises(AssertionError, match="generation 2"):
        run.launch(StepPlan(1, 0, 0, 0, [], [], [], [VerifyRow(1, 2)]))
    with pytest.raises(AssertionError, match="generation 3 after 3"):
        run.launch(StepPlan(2, 0, 0, 0, [admit], [], [], []))


def test_check_alone_sees_a_wrong_token_and_a_wrong_end(llama: Stage) -> None:
    request = make_request(1, prompt=[3, 4, 5], max_tokens=5)
    loop = Loop(make_run(llama))
    loop.add(request)
    loop.finish()
    tokens = loop.answers[1].tokens
    check_alone(llama, request, tokens, FinishReason.LENGTH)
    for wrong in ([*tokens[:-1], (tokens[-1] + 1) % VOCAB], tokens[:-1]):
        with pytest.raises(AssertionError):
            check_alone(llama, request, wrong, FinishReason.LENGTH)
