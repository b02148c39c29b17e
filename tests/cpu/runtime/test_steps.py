"""Single steps by hand: inert rows, faults, log-probabilities, refused plans, reused buffers."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

import pytest
import torch

from draftmark.core.step import (
    Admit,
    PageDelta,
    PrefillRow,
    ResultRow,
    RowSampling,
    StepPlan,
    StepResult,
    VerifyRow,
)
from draftmark.kernels import sample as op
from draftmark.kernels.backends import Backends
from draftmark.models.stage import Stage
from draftmark.runtime import sampler, staging
from draftmark.runtime.pipeline import WorkerRun
from draftmark.runtime.relay import DONE, LENGTH
from draftmark.runtime.stage_run import StageRun
from draftmark.runtime.staging import StagingRing, StepShape
from tests.cpu.runtime.harness import CPU, VOCAB, forward_whole, make_run, make_stage

GREEDY = RowSampling(0, 0.0, 1.0, 0, 0.0, 0.0, 0.0, 1.0, -1)


@pytest.fixture(scope="module")
def stage() -> Stage:
    return make_stage("llama", backends=Backends())


def admit(
    slot: int, *, generation: int = 1, end: int = 100, cached: int = 0, **fields: object
) -> Admit:
    sampling = fields.pop("sampling", GREEDY)
    stop_ids = fields.pop("stop_ids", ())
    return Admit(slot, generation, 7, cached, end, 0, stop_ids, sampling, **fields)


def pages(slot: int, *, generation: int = 1, count: int = 4) -> PageDelta:
    return PageDelta(slot, generation, 0, list(range(4 * slot, 4 * slot + count)))


def prefill(slot: int, ids: list[int], *, start: int = 0, lookahead: int = -1, **fields: object):
    samples = fields.pop("samples", lookahead < 0)
    generation = fields.pop("generation", 1)
    return PrefillRow(slot, generation, start, ids, lookahead, samples, **fields)


class Steps:
    """Plans so far apart that a slot may be used again in the next one."""

    @property
    def stage(self) -> StageRun:
        return self.run.runs[0]

    def __init__(self, run: WorkerRun) -> None:
        self.run = run
        self._step = 0

    def __call__(self, *, admits=(), deltas=(), rows=(), verify=()) -> StepResult:
        plan = StepPlan(self._step, 0, 0, 0, list(admits), list(deltas), list(rows), list(verify))
        self._step += 2
        return self.run.launch(plan).result()

    def begin(self, *slots: int, ids: tuple[int, ...] = (5, 6, 7), **fields: object) -> StepResult:
        return self(
            admits=[admit(slot, **fields) for slot in slots],
            deltas=[pages(slot) for slot in slots],
            rows=[prefill(slot, list(ids)) for slot in slots],
        )


# -- inert rows -----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "hybrid"])
def test_a_done_row_emits_nothing_and_writes_nowhere_but_to_the_dump(family: str) -> None:
    """Neither to pages nor to states."""
    steps = Steps(make_run(make_stage(family, num_layers=3)))
    first = steps.begin(1, end=4).rows[0]
    assert first.done and len(first.emitted) == 1 and first.length == 3
    steps.begin(2)  # the return of the first step is applied at the head of the next
    caches = steps.stage._caches
    before = [tensor.clone() for tensor in caches._tensors()]
    state = steps.stage.state.state.clone()
    (row,) = steps(verify=[VerifyRow(1, 1)]).rows
    assert row == ResultRow(1, 1, [], 3, 0, True)
    for old, new in zip(before, caches._tensors(), strict=True):
        torch.testing.assert_close(old[1:], new[1:], rtol=0, atol=0, equal_nan=True)
    steps.begin(3)
    now = steps.stage.state.state
    assert torch.equal(state[1, [LENGTH, DONE]], now[1, [LENGTH, DONE]])


def test_a_row_beside_a_done_one_is_as_if_alone(stage: Stage) -> None:
    alone, beside = Steps(make_run(stage)), Steps(make_run(stage))
    alone.begin(1)
    beside(
        admits=[admit(1), admit(2, end=4)],
        deltas=[pages(1), pages(2)],
        rows=[prefill(1, [5, 6, 7]), prefill(2, [8, 8, 8])],
    )
    for _ in range(4):
        want = alone(verify=[VerifyRow(1, 1)]).rows[0]
        got = beside(verify=[VerifyRow(2, 1), VerifyRow(1, 1)]).rows
        assert got[1] == want and got[0].emitted == []


def test_a_stop_id_ends_the_row_and_min_tokens_puts_it_off(stage: Stage) -> None:
    natural = Steps(make_run(stage)).begin(1).rows[0].emitted[0]
    ended = Steps(make_run(stage)).begin(1, stop_ids=(natural,)).rows[0]
    assert ended.done and ended.emitted == [natural]
    steps = Steps(make_run(stage))
    early = Admit(1, 1, 7, 0, 100, 5, (natural,), GREEDY)
    (row,) = steps(admits=[early], deltas=[pages(1)], rows=[prefill(1, [5, 6, 7])]).rows
    assert not row.done and row.emitted != [natural]


# -- faults ---------------------------------------------------------------------------------------


@pytest.fixture
def broken() -> Iterator[Stage]:
    """A stage of its own, to break."""
    yield make_stage("llama", backends=Backends())


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_the_first_bad_layer_is_named_for_the_row_that_has_it(
    broken: Stage, layer: int, bad: float
) -> None:
    """Token 9 alone makes the layer give something that is not finite."""
    original = broken.blocks[layer]

    def poisoned(hidden, *rest):
        out = original(hidden, *rest)
        out[ids == 9] = bad
        return out

    run = make_run(broken)
    whole = broken.forward
    ids = torch.tensor([0])

    def noting(inputs, *rest):
        nonlocal ids
        ids = inputs
        return whole(inputs, *rest)

    broken.forward = noting
    blocks = list(broken.blocks)
    blocks[layer] = poisoned
    broken.blocks = tuple(blocks)
    steps = Steps(run)
    result = steps(
        admits=[admit(1), admit(2), admit(3), admit(4)],
        deltas=[pages(slot) for slot in (1, 2, 3, 4)],
        rows=[
            prefill(1, [5, 6]),
            prefill(2, [5, 9, 6]),
            prefill(3, [5, 6], lookahead=1),
            prefill(4, [9, 6], lookahead=1),
        ],
    )
    good, hit = result.rows
    assert good.bad_layer == -1 and len(good.emitted) == 1
    assert hit == ResultRow(2, 1, [], 3, 0, True, layer)
    assert result.bad_prefill == [(4, 1, layer)]
    after = steps(verify=[VerifyRow(1, 1), VerifyRow(2, 1)]).rows
    assert after[0].bad_layer == -1 and len(after[0].emitted) == 1
    assert after[1] == ResultRow(2, 1, [], 3, 0, True)


def test_a_bad_head_is_named_by_the_number_of_layers(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(stage)
    head = run.runs[0]._sampler._head

    def broken_head(hidden: torch.Tensor) -> torch.Tensor:
        logits = head(hidden)
        logits[0, 3] = math.nan
        return logits

    monkeypatch.setattr(run.runs[0]._sampler, "_head", broken_head)
    bad, good = Steps(run).begin(1, 2).rows
    assert bad.bad_layer == stage.config.num_layers and bad.emitted == [] and bad.done
    assert good.bad_layer == -1 and len(good.emitted) == 1


def test_a_row_that_reads_what_was_never_stored_is_a_fault(stage: Stage) -> None:
    """Pools begin as NaN: a claim of cached pages that nobody wrote is seen."""
    steps = Steps(make_run(stage))
    result = steps(
        admits=[admit(1, cached=16)],
        deltas=[pages(1)],
        rows=[prefill(1, [5, 6], start=16)],
    )
    assert result.rows[0].bad_layer == 0 and result.rows[0].emitted == []


# -- log-probabilities ----------------------------------------------------------------------------


def test_logprobs_are_of_the_models_own_distribution(stage: Stage) -> None:
    """Rows with and without, with different numbers of alternatives, processed or not."""
    prompt = [5, 6, 7]
    biased = RowSampling(0, 0.0, 1.0, 0, 0.0, 0.0, 0.0, 1.0, 3, ((11, 90.0),))
    plain = RowSampling(0, 0.0, 1.0, 0, 0.0, 0.0, 0.0, 1.0, 0)
    rows = Steps(make_run(stage))(
        admits=[admit(1), admit(2, sampling=biased), admit(3, sampling=plain)],
        deltas=[pages(slot) for slot in (1, 2, 3)],
        rows=[prefill(slot, prompt) for slot in (1, 2, 3)],
    ).rows
    assert rows[0].logprobs is None
    want = forward_whole(stage, prompt)[-1].log_softmax(0)
    (entry,) = rows[1].logprobs
    assert rows[1].emitted == [11] and entry.token == 11
    assert entry.logprob == pytest.approx(want[11].item(), abs=1e-9)
    assert entry.rank == 1 + int((want > want[11]).sum())
    values, ids = want.topk(3)
    assert [token for token, _ in entry.top] == ids.tolist()
    assert [value for _, value in entry.top] == pytest.approx(values.tolist(), abs=1e-9)
    (entry,) = rows[2].logprobs
    assert entry.top == [] and entry.rank == 1
    assert entry.logprob == pytest.approx(want.max().item(), abs=1e-9)


@pytest.mark.parametrize("cuts", [[], [1], [7, 8, 30]])
def test_prompt_logprobs_in_chunks_are_those_of_the_whole(
    stage: Stage, cuts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "PROMPT_SLICE", 5)
    rng = random.Random(2)
    prompt = [rng.randrange(VOCAB) for _ in range(40)]
    want = forward_whole(stage, prompt).log_softmax(-1)
    steps = Steps(make_run(stage))
    bounds = [0, *cuts, len(prompt)]
    entries = []
    for start, stop in itertools.pairwise(bounds):
        is_last = stop == len(prompt)
        other = [admit(2), pages(2), prefill(2, [1, 2])] if start == 0 else None
        result = steps(
            admits=[admit(1), other[0]] if other else [],
            deltas=[pages(1), other[1]] if other else [],
            rows=([other[2]] if other else [])
            + [
                prefill(
                    1,
                    prompt[start:stop],
                    start=start,
                    lookahead=-1 if is_last else prompt[stop],
                    prompt_logprobs=2,
                )
            ],
        )
        (part,) = result.prompt_logprobs
        assert (part.slot, part.generation, part.start) == (1, 1, start)
        entries += part.entries
    assert [entry.token for entry in entries] == prompt[1:]
    for index, entry in enumerate(entries):
        row = want[index]
        assert entry.logprob == pytest.approx(row[prompt[index + 1]].item(), abs=1e-9)
        assert [token for token, _ in entry.top] == row.topk(2).indices.tolist()


def test_a_bad_head_in_prompt_logprobs_fails_the_row(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no token is sampled from it."""
    run = make_run(stage)
    head = run.runs[0]._sampler._head

    def broken_head(hidden: torch.Tensor) -> torch.Tensor:
        logits = head(hidden)
        logits[-1, 3] = -math.inf
        return logits

    monkeypatch.setattr(run.runs[0]._sampler, "_head", broken_head)
    result = Steps(run)(
        admits=[admit(1)],
        deltas=[pages(1)],
        rows=[prefill(1, [4, 5], lookahead=6, prompt_logprobs=0)],
    )
    assert result.bad_prefill == [(1, 1, stage.config.num_layers)]


# -- plans that cannot be right --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"verify": [VerifyRow(2, 1)]}, "generation 1, 0 is there"),
        ({"verify": [VerifyRow(1, 1), VerifyRow(1, 1)]}, "two rows"),
        ({"rows": [prefill(1, [1], start=3)]}, "prefills from 3"),
        ({"deltas": [PageDelta(1, 1, 2, [9])]}, "puts pages at 2"),
        ({"deltas": [PageDelta(1, 1, 4, [0])]}, "hands out pages"),
        ({"deltas": [PageDelta(1, 1, 4, [65])]}, "hands out pages"),
        ({"admits": [admit(0)]}, "admits to slot 0"),
        ({"admits": [admit(1)]}, "generation 1 after 1"),
        ({"admits": [admit(2)], "rows": [prefill(2, [1, 2], start=1)]}, "prefills from 1"),
    ],
)
def test_a_plan_that_contradicts_earlier_ones_raises(
    stage: Stage, plan: dict[str, object], message: str
) -> None:
    steps = Steps(make_run(stage))
    steps.begin(1)
    with pytest.raises(AssertionError, match=message):
        steps(**plan)


def test_a_slot_under_a_new_generation_shares_nothing_with_the_old(stage: Stage) -> None:
    """Same slot: stale pages, counts, stop ids and biases of the last holder have no effect."""
    sampling = RowSampling(3, 0.7, 1.0, 0, 0.0, 1.0, 1.0, 1.5, -1, ((4, 50.0),))
    used = Steps(make_run(stage))
    used.begin(1, sampling=sampling, stop_ids=(1, 2), prompt_ids=[5, 6, 7], output_ids=[8])
    for _ in range(20):
        used(verify=[VerifyRow(1, 1)])
    fresh = Steps(make_run(stage))
    new = RowSampling(3, 0.7, 1.0, 0, 0.0, 0.5, 0.0, 1.0, -1)
    for steps in (used, fresh):
        steps(
            admits=[admit(1, generation=2, sampling=new, prompt_ids=[9, 9])],
            deltas=[PageDelta(1, 2, 0, [30, 31])],
            rows=[prefill(1, [9, 9], generation=2)],
        )
    for _ in range(12):
        assert used(verify=[VerifyRow(1, 2)]).rows == fresh(verify=[VerifyRow(1, 2)]).rows
    assert (used.stage._sampler.tables.counts[1] & op.IN_PROMPT != 0).nonzero().tolist() == [[9]]


# -- staging --------------------------------------------------------------------------------------


def test_no_more_steps_may_be_in_flight_than_there_are_entries(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "PATIENCE_S", 0.05)
    run = make_run(stage)
    pending = [
        run.launch(StepPlan(0, 0, 0, 0, [admit(1)], [pages(1)], [prefill(1, [5])], [])),
        run.launch(StepPlan(1, 0, 0, 0, [], [], [], [VerifyRow(1, 1)])),
        run.launch(StepPlan(2, 0, 0, 0, [], [], [], [VerifyRow(1, 1)])),
    ]
    with pytest.raises(AssertionError, match="in flight"):
        run.launch(StepPlan(3, 0, 0, 0, [], [], [], [VerifyRow(1, 1)]))
    assert [p.result().step for p in pending] == [0, 1, 2]
    assert run.launch(StepPlan(4, 0, 0, 0, [], [], [], [VerifyRow(1, 1)])).result().rows


def test_a_released_entry_is_poisoned_and_used_again() -> None:
    ring = StagingRing(
        2, shape=StepShape(max_rows=2, max_prefill_tokens=4), device=CPU, poison=True
    )
    entry = ring.take()
    section = entry.ints([1, 2, 3])
    numbers = entry.floats([0.5])
    entry.upload()
    assert section.tolist() == [1, 2, 3] and numbers.tolist() == [0.5]
    entry.release()
    assert section.tolist() != [1, 2, 3] and set(section.tolist()) == {-(2**62)}
    assert entry.logprobs.isnan().all()
    ring.take()
    assert ring.take() is entry


def test_many_penalty_ids_grow_the_entry(stage: Stage) -> None:
    run = make_run(stage)
    long = [token % VOCAB for token in range(20_000)]
    (row,) = Steps(run)(
        admits=[
            admit(
                1,
                sampling=RowSampling(0, 0.0, 1.0, 0, 0.0, 0.1, 0.0, 1.0, -1),
                prompt_ids=[1, 2],
                output_ids=long,
            )
        ],
        deltas=[pages(1)],
        rows=[prefill(1, [1, 2])],
    ).rows
    assert row.emitted
    counts = run.runs[0]._sampler.tables.counts[1] & ~op.IN_PROMPT
    counts[row.emitted[0]] -= 1
    assert counts.sum() == 20_000
