"""Logic equality of hybrid models in float64: chunks, batches, snapshots, preemption, aborts.

A request gives what one whole prefill of its prompt and answer gives. Caches begin as NaN. Each
planted fault must be seen by the same comparison.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

from draftmark.core.request import Request
from draftmark.kernels.backends import REFERENCE, Backends
from draftmark.layers.recurrent import RecurrentCache
from draftmark.models.stage import Stage
from draftmark.runtime.memory import Caches
from draftmark.runtime.slots import SlotState, SlotTables
from tests.cpu.runtime.harness import Loop, make_request, make_run, make_stage
from tests.fakes.tiny_models import VOCAB

MAX_CONTEXT = 352
# Delta nets with experts, attention with experts, a delta net with an MLP.
NUM_LAYERS = 4


@pytest.fixture(scope="module")
def stage() -> Stage:
    return make_hybrid()


def make_hybrid(*, family: str = "hybrid", backends: Backends = Backends()) -> Stage:  # noqa: B008
    return make_stage(family, num_layers=NUM_LAYERS, max_context=MAX_CONTEXT, backends=backends)


def make_loop(stage: Stage, *, depth: int = 2, num_snapshots: int = 4, **sizes: int) -> Loop:
    run = make_run(stage, max_context=MAX_CONTEXT, num_snapshots=num_snapshots, **sizes)
    return Loop(run, max_context=MAX_CONTEXT, num_snapshots=num_snapshots, depth=depth, **sizes)


def some_requests(rng: random.Random, count: int) -> list[Request]:
    """Prompts that share beginnings of several lengths, some of them whole prompts of others."""
    trunk = [rng.randrange(VOCAB) for _ in range(200)]
    requests: list[Request] = []
    for index in range(count):
        prompt = trunk[: rng.choice([0, 20, 64, 70, 128, 150, 200])]
        prompt = prompt + [rng.randrange(VOCAB) for _ in range(rng.choice([0, 1, 5, 40, 80]))]
        if requests and rng.random() < 0.2:
            prompt = list(rng.choice(requests).prompt_ids)
        requests.append(
            make_request(
                index,
                prompt=prompt or [7],
                max_tokens=rng.choice([1, 3, 20, 40]),
                temperature=rng.choice([0.0, 1.0]),
                seed=index,
            )
        )
    return requests


def run_history(
    stage: Stage,
    seed: int,
    *,
    num_requests: int = 10,
    on_loop: Callable[[Loop], None] | None = None,
) -> Loop:
    """Random arrivals and aborts; most pools are too small for all that runs."""
    rng = random.Random(seed)
    loop = make_loop(
        stage,
        depth=rng.choice([1, 2]),
        num_snapshots=rng.choice([1, 2, 5, 12]),
        num_pages=rng.choice([24, 30, 45, 90]),
        num_slots=rng.choice([3, 5]),
        prefill_tokens=rng.choice([30, 64, 200]),
    )
    if on_loop is not None:
        on_loop(loop)
    requests = some_requests(rng, num_requests)
    waiting = list(requests)
    while waiting or loop.scheduler.has_work:
        while waiting and rng.random() < 0.4:
            loop.add(waiting.pop(0))
        if rng.random() < 0.02:
            loop.abort(rng.randrange(num_requests))
        loop.step()
    loop.check_answers(stage, requests)
    return loop


def counts_of(loop: Loop) -> tuple[int, int, int]:
    """(snapshots saved, restored, tokens taken from the cache)."""
    saved = sum(row.snapshot >= 0 for plan in loop.plans for row in plan.prefill)
    admits = [admit for plan in loop.plans for admit in plan.admits]
    restored = [admit.cached for admit in admits if admit.restore >= 0]
    assert all(admit.cached == 0 for admit in admits if admit.restore < 0)
    return saved, len(restored), sum(restored)


@pytest.mark.parametrize("seed", range(2))
def test_any_history_gives_what_each_request_gives_alone(stage: Stage, seed: int) -> None:
    saved, restored, _ = counts_of(run_history(stage, seed))
    assert saved and restored


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 103))
def test_many_more_histories(stage: Stage, seed: int) -> None:
    run_history(stage, seed, num_requests=25)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["hybrid", "delta"])
def test_the_judges_kernels_and_a_model_without_attention(family: str) -> None:
    run_history(make_hybrid(family=family, backends=REFERENCE), 7, num_requests=3)


@pytest.mark.parametrize("chunk", [pytest.param(1, marks=pytest.mark.slow), 16, 33, 64, 200])
def test_any_chunks_are_the_whole(stage: Stage, chunk: int) -> None:
    loop = make_loop(stage, prefill_tokens=chunk)
    request = make_request(0, prompt=[(7 * i) % VOCAB for i in range(180)], max_tokens=20)
    loop.add(request)
    loop.finish()
    loop.check_answers(stage, [request])


def test_a_slot_begins_empty(stage: Stage) -> None:
    """One slot: whoever comes after somebody finds nothing of it, also after an abort halfway."""
    loop = make_loop(stage, num_slots=2, num_snapshots=0, prefill_tokens=20)
    rng = random.Random(4)
    requests = [
        make_request(i, prompt=[rng.randrange(VOCAB) for _ in range(count)], max_tokens=6)
        for i, count in enumerate((50, 1, 90, 2, 33))
    ]
    for request in requests:
        loop.add(request)
        if request.id == 2:
            loop.step()
            loop.step()
            loop.abort(2)
        loop.finish()
    loop.check_answers(stage, requests)
    assert loop.answers[2].tokens == []


def test_shared_beginnings_are_restored_from_the_third_on(stage: Stage) -> None:
    """The first leaves a snapshot near its own end, the second one where they part."""
    rng = random.Random(5)
    shared = [rng.randrange(VOCAB) for _ in range(200)]
    loop = make_loop(stage, num_snapshots=12, num_pages=200)
    cached = []
    for index in range(5):
        own = [rng.randrange(VOCAB) for _ in range(100)]
        request = make_request(index, prompt=shared + own, max_tokens=4)
        loop.add(request)
        loop.finish()
        end = loop.answers[index].end
        assert end is not None
        loop.check_answers(stage, [request])
        cached.append(_cached_of(loop, index))
    assert cached[:2] == [0, 0] and min(cached[2:]) >= 192, cached


def _cached_of(loop: Loop, request: int) -> int:
    return next(a.cached for plan in loop.plans for a in plan.admits if a.request == request)


def test_preempted_requests_go_on_exactly(stage: Stage) -> None:
    loop = make_loop(stage, num_pages=24, num_slots=5)
    requests = [
        make_request(i, prompt=[(i + 3 * j) % VOCAB for j in range(70)], max_tokens=60)
        for i in range(4)
    ]
    loop.add(*requests)
    loop.finish()
    loop.check_answers(stage, requests)
    admits = [admit.request for plan in loop.plans for admit in plan.admits]
    assert len(admits) > len(set(admits)), "nobody was preempted"


@pytest.mark.slow
def test_nothing_needs_triton() -> None:
    """In a process in which it cannot be imported; nor is it, where it can."""
    code = (
        "import sys; sys.modules['triton'] = None; import torch; "
        "from draftmark.kernels.backends import choose; "
        "import tests.cpu.runtime.test_hybrids as t; "
        "t.run_history(t.make_hybrid(), 1); "
        "print(choose(torch.device('cpu'), dtype=torch.float64).report())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "'gated_delta': '" in done.stdout and "triton" not in done.stdout


# -- planted faults -------------------------------------------------------------------------------


def _no_restore(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Caches, "restore", lambda self, slot, snapshot: None)


def _stale_convolution(patch: pytest.MonkeyPatch) -> None:
    def restore(self: RecurrentCache, slot: int, snapshot: int) -> None:
        self.conv[slot].zero_()
        self.delta.state[slot].copy_(self.saved_state[snapshot])

    patch.setattr(RecurrentCache, "restore", restore)


def _strangers_snapshot(patch: pytest.MonkeyPatch) -> None:
    real = RecurrentCache.restore

    def restore(self: RecurrentCache, slot: int, snapshot: int) -> None:
        real(self, slot, (snapshot + 1) % len(self.saved_state))

    patch.setattr(RecurrentCache, "restore", restore)


def _nothing_folded(patch: pytest.MonkeyPatch) -> None:
    real = SlotState.rows

    def rows(self: SlotState, inputs, *, width):  # type: ignore[no-untyped-def]
        ids, found = real(self, inputs, width=width)
        found = found.clone()
        found[:, 2] = 0
        return ids, found

    patch.setattr(SlotState, "rows", rows)


def _slot_of_another(patch: pytest.MonkeyPatch) -> None:
    real = SlotTables.batch

    def batch(self: SlotTables, plan, inputs, rows):  # type: ignore[no-untyped-def]
        made = real(self, plan, inputs, rows)
        if len(made.verify_slots) > 1:
            made.verify_slots.copy_(made.verify_slots.roll(1))
        return made

    patch.setattr(SlotTables, "batch", batch)


def _saved_before_the_step(patch: pytest.MonkeyPatch) -> None:
    """What the slot held one chunk ago, as if the copy did not wait for the forward."""
    real = Caches.save
    behind: dict[int, torch.Tensor] = {}

    def save(self: Caches, slot: int, snapshot: int) -> None:
        real(self, slot, snapshot)
        for index, cache in enumerate(self.layers):
            if isinstance(cache, RecurrentCache):
                old = behind.get(index)
                behind[index] = cache.saved_state[snapshot].clone()
                if old is not None:
                    cache.saved_state[snapshot].copy_(old)

    patch.setattr(Caches, "save", save)


FAULTS = (
    _no_restore,
    _nothing_folded,
    _stale_convolution,
    _strangers_snapshot,
    _slot_of_another,
    _saved_before_the_step,
)


@pytest.mark.parametrize(
    "plant", [*FAULTS[:2], *(pytest.param(fault, marks=pytest.mark.slow) for fault in FAULTS[2:])]
)
def test_each_planted_fault_is_seen(
    stage: Stage, plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(3):
        try:
            run_history(stage, seed)
        except AssertionError:
            return
    pytest.fail("no history saw it")
