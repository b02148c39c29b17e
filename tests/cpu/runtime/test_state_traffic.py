"""What a round of a window costs in recurrent state: for any number of drafts what decoding costs.

Counted where operations are dispatched: whoever touches the storage of a layer's states is seen,
with the operation, and whether the op of verify rows did it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from draftmark.core.step import StepPlan
from draftmark.kernels import delta_rows
from draftmark.kernels.gated_delta import FOLD_TOKENS
from draftmark.layers.recurrent import RecurrentCache
from draftmark.models.stage import Stage
from draftmark.runtime.mtp import MTPDrafter
from tests.cpu.runtime.harness import VOCAB, Loop, make_request, make_run
from tests.cpu.runtime.speculation_harness import make_fluent_stages

NUM_ROWS, PROMPT, MAX_TOKENS = 3, 21, 60
# A state is read by one product; to fold records into it is one decay and one product in place.
READ, FOLD = "bmm", ("mul_", "baddbmm_")


@dataclass
class Round:
    """One step: operations on states by layer, calls of the op, and what happened outside it."""

    of_layer: dict[int, Counter[str]] = field(default_factory=dict)
    calls: Counter[int] = field(default_factory=Counter)
    outside: list[str] = field(default_factory=list)


class StateWatch(TorchDispatchMode):
    def __init__(self, caches: Sequence[RecurrentCache]) -> None:
        super().__init__()
        self.round = Round()
        self.inside = False
        self.layers = {_address(cache.delta.state): i for i, cache in enumerate(caches)}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        given = [*args, *(kwargs or {}).values()]
        tensors = [x for part in given for x in (part if isinstance(part, list) else [part])]
        touched = {_address(x) for x in tensors if isinstance(x, Tensor)} & self.layers.keys()
        if touched and not func.is_view:
            name = func.overloadpacket.__name__
            if not self.inside:
                self.round.outside.append(name)
            for address in touched:
                self.round.of_layer.setdefault(self.layers[address], Counter())[name] += 1
        return func(*args, **(kwargs or {}))


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def watch_rounds(
    k: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[tuple[StepPlan, Round]], Loop]:
    """Every step that has verify rows alone."""
    stages = stages_with_head()
    sizes = {"num_slots": NUM_ROWS + 1, "max_drafts": k}
    run = make_run(*stages, **sizes, make_drafter=MTPDrafter if k else None)
    loop = Loop(run, **sizes, depth=1, num_snapshots=0)
    caches = [c for c in run.runs[0]._caches.layers if isinstance(c, RecurrentCache)]
    watch = StateWatch(caches)
    original = delta_rows._VERIFY["torch"]

    def verify(x: Tensor, weights: Any, ring: Tensor, cache: Any, *rest: Any) -> Tensor:
        watch.inside = True
        watch.round.calls[watch.layers[_address(cache.state)]] += 1
        out = original(x, weights, ring, cache, *rest)
        watch.inside = False
        return out

    monkeypatch.setattr(delta_rows, "_VERIFY", {**delta_rows._VERIFY, "torch": verify})
    for number in range(NUM_ROWS):
        prompt = [(number + 7 * i) % VOCAB for i in range(PROMPT)]
        loop.add(make_request(number, prompt=prompt, max_tokens=MAX_TOKENS))
    rounds = []
    while loop.scheduler.has_work:
        watch.round = Round()
        with watch:
            loop.step()
        if not loop.plans[-1].prefill:
            rounds.append((loop.plans[-1], watch.round))
    return rounds, loop


def stages_with_head() -> list[Stage]:
    return make_fluent_stages((3,), "hybrid")


@pytest.mark.parametrize("k", range(6))
def test_a_round_reads_each_state_once_and_folds_it_at_most_once(
    k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds, loop = watch_rounds(k, monkeypatch)
    folds = 0
    for plan, seen in rounds:
        num_rows = len(plan.verify)
        assert not seen.outside, f"states are touched outside the op: {seen.outside}"
        assert seen.calls == {0: 1, 1: 1}
        for counts in seen.of_layer.values():
            assert counts.keys() <= {READ, *FOLD}
            assert counts[READ] == num_rows
            assert counts[FOLD[0]] == counts[FOLD[1]] <= num_rows
            folds += counts[FOLD[0]]
    emitted = sum(len(row.emitted) for result in loop.results for row in result.rows)
    assert emitted == NUM_ROWS * MAX_TOKENS
    if k:
        assert len(rounds) < MAX_TOKENS - 1, "nothing was accepted"
    # The last token is never run, and what the last window added never folded.
    most = (PROMPT + MAX_TOKENS - 1) // FOLD_TOKENS - PROMPT // FOLD_TOKENS
    assert 2 * NUM_ROWS * (most - 1) <= folds <= 2 * NUM_ROWS * most


def test_the_watch_sees_a_copy_of_a_state_for_each_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    """As who keeps a state for each token of a window must make."""
    original = Stage.forward

    def forward(self: Stage, inputs: Tensor, batch: Any, caches: Any) -> Any:
        out = original(self, inputs, batch, caches)
        for cache in caches:
            if isinstance(cache, RecurrentCache) and batch.num_verify:
                cache.delta.state.index_select(0, batch.verify_slots)
        return out

    monkeypatch.setattr(Stage, "forward", forward)
    rounds, _ = watch_rounds(2, monkeypatch)
    assert all(seen.outside == ["index_select"] * 2 for _, seen in rounds)
