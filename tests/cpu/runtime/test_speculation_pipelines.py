"""Drafts over pipelines and tensor ranks in threads of their own, on strict wires with delays:
every request gives what it gives alone, and ranks that are not of one mind are seen.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from draftmark.kernels.backends import REFERENCE
from draftmark.models.stage import Stage
from draftmark.runtime.drafting import Drafting
from draftmark.runtime.mtp import MTPDrafter
from draftmark.runtime.relay import PACKED_DONE, PACKED_TOKEN
from tests.cpu.runtime.pipeline_harness import NUM_LAYERS, Cut, PipelineLoop, Played, play
from tests.cpu.runtime.speculation_harness import make_fluent_stages, verify_rows

CUTS = [
    ("hybrid", Cut(stages=(2, 2), cohorts=2), 3),
    ("llama", Cut(stages=(1, 3), cohorts=2, tp=2), 2),
    pytest.param("hybrid", Cut(tp=2, cohorts=2), 5, marks=pytest.mark.slow),
    pytest.param("hybrid", Cut(stages=(1, 2, 1), cohorts=3), 1, marks=pytest.mark.slow),
    pytest.param("llama", Cut(stages=(1, 1, 1, 1), cohorts=4), 4, marks=pytest.mark.slow),
    pytest.param("hybrid", Cut(stages=(2, 2), cohorts=2, tp=2), 3, marks=pytest.mark.slow),
]
TENSOR_RANKS = Cut(stages=(2, 2), cohorts=2, tp=2)


@cache
def judge(family: str) -> Stage:
    """The whole model, with the reference kernels."""
    (stage,) = make_fluent_stages((NUM_LAYERS,), family, backends=REFERENCE)
    return stage


def play_drafted(family: str, cut: Cut, k: int, **options: Any) -> Played:
    return play(
        cut,
        family=family,
        seed=k,
        max_drafts=k,
        make=make_fluent_stages,
        **{"make_drafter": MTPDrafter, **options},
    )


@pytest.mark.parametrize(("family", "cut", "k"), CUTS, ids=str)
def test_any_cut_gives_with_drafts_what_each_request_gives_alone(
    family: str, cut: Cut, k: int
) -> None:
    played = play_drafted(family, cut, k)
    loop = played.loop
    loop.check_answers(judge(family), played.requests)
    for request in played.requests:
        loop.check_logprobs(judge(family), request)
    rows = verify_rows(loop)
    assert any(len(row.emitted) > 1 for row in rows), "nothing was accepted"
    assert any(len(row.emitted) <= row.drafted for row in rows), "nothing was rejected"


# -- tensor ranks that differ ---------------------------------------------------------------------


class Gated(MTPDrafter):
    """Rank 1 drafts only where a row goes on with an even token: what it sees decides for it
    whether it takes part."""

    def _chain(self, step: Drafting, packed: torch.Tensor, hidden: torch.Tensor) -> None:
        rank = self._seat.stage.placement.mesh.tp_rank
        goes_on = (packed[:, PACKED_TOKEN] % 2 == 0) & (packed[:, PACKED_DONE] == 0)
        if rank == 0 or goes_on.any():
            super()._chain(step, packed, hidden)


class Willful(MTPDrafter):
    """Rank 1 takes other drafts."""

    def _chain(self, step: Drafting, packed: torch.Tensor, hidden: torch.Tensor) -> None:
        super()._chain(step, packed, hidden)
        if self._seat.stage.placement.mesh.tp_rank == 1:
            drafts = slice(PACKED_TOKEN + 1, step.layout.packed_emitted)
            packed[:, drafts] = (packed[:, drafts] + 1) % self._seat.stage.config.vocab_size


def unchecked(loop: PipelineLoop) -> None:
    loop.scheduler.check = lambda: None  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("drafter", "says"),
    [
        (Gated, "ranks met with different calls|BrokenBarrierError"),
        pytest.param(Willful, "tensor ranks sent other bits", marks=pytest.mark.slow),
    ],
)
def test_ranks_that_do_not_draft_alike_are_seen(drafter: type[MTPDrafter], says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        play_drafted("llama", TENSOR_RANKS, 2, make_drafter=drafter, on_loop=unchecked)
