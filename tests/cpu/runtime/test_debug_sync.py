"""`--debug-sync lane`: tensor ranks that drift apart are named at the step where they do."""

from __future__ import annotations

import pytest
import torch

from draftmark.core.step import Admit, PageDelta, PrefillRow, RowSampling, StepPlan, VerifyRow
from draftmark.parallel.collectives import TensorGroup
from draftmark.runtime.debug_sync import COPY, LANE, DebugSync, digest
from draftmark.runtime.pipeline import Placing, make_worker_run
from tests.cpu.runtime.harness import CPU, make_limits, make_stages, make_topology, no_wire
from tests.fakes.thread_group import run_ranks

GREEDY = RowSampling(0, 0.0, 1.0, 0, 0.0, 0.0, 0.0, 1.0, -1)


def steps(group: TensorGroup, *, drifts: bool) -> list[list[int]]:
    """What three steps emit; with `drifts`, rank 1's hidden states differ a little in the last."""
    torch.set_num_threads(1)
    stages = make_stages((2,), group=group)
    run = make_worker_run(
        stages,
        placing=Placing(
            topology=make_topology((2,), tp=group.size),
            worker=group.rank,
            connect=no_wire,
            note=lambda *said: None,
            sync=DebugSync((LANE,)),
        ),
        limits=make_limits(),
        kv_dtype=torch.float64,
        device=CPU,
    )
    plans = [
        StepPlan(
            0,
            0,
            0,
            0,
            [Admit(1, 1, 1, 0, 40, 0, (), GREEDY)],
            [PageDelta(1, 1, 0, [3, 4, 5])],
            [PrefillRow(1, 1, 0, [5, 6, 7], -1, True)],
            [],
        ),
        *(StepPlan(step, 0, 0, 0, [], [], [], [VerifyRow(1, 1)]) for step in (1, 2)),
    ]
    emitted = []
    for plan in plans:
        if drifts and group.rank == 1 and plan.step == 2:
            stages[0].forward = _nudging(stages[0].forward)
        result = run.launch(plan).result()
        emitted.append(result.rows[0].emitted if result is not None else [])
    return emitted


def _nudging(forward):
    def nudged(*args):
        out = forward(*args)
        hidden = out.hidden.clone()
        hidden[0, 0] = torch.nextafter(hidden[0, 0], torch.tensor(9.0, dtype=hidden.dtype))
        return out._replace(hidden=hidden)

    return nudged


def test_ranks_that_agree_give_what_they_give_unwatched() -> None:
    first, second = run_ranks(2, lambda group: steps(group, drifts=False))
    assert all(first) and second == [[], [], []]  # rank 0 tells the host
    assert run_ranks(1, lambda group: steps(group, drifts=False)) == [first]


def test_a_last_bit_that_differs_is_named() -> None:
    words = r"hidden states of stage 0, step 2, cohort 0: tensor ranks \[1\] differ from rank 0"
    with pytest.raises(AssertionError, match=words):
        run_ranks(2, lambda group: steps(group, drifts=True))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.bfloat16])
def test_the_digest_sees_one_bit_and_its_place(dtype: torch.dtype) -> None:
    value = torch.arange(60).view(6, 10).to(dtype)
    other = value.clone()
    other[3, 4] += 1
    swapped = value[[1, 0, 2, 3, 4, 5]]
    assert len({int(digest(v)) for v in (value, other, swapped)}) == 3
    assert int(digest(value.t().contiguous().t())) == int(digest(value))


def test_on_a_cpu_there_is_nothing_to_wait_for() -> None:
    sync = DebugSync((LANE, COPY), device=CPU)
    sync.around(LANE)
    assert "nothing to wait for on a CPU" in sync.describe()
