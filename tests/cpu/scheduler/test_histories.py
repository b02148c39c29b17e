"""Whatever happens, every request gives what it gives alone, and nothing is lost or kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings

from draftmark.core.request import FinishReason
from draftmark.core.step import StepPlan
from tests.cpu.scheduler.histories import (
    Event,
    World,
    bad_requests,
    drafting_history,
    histories,
    hybrid_history,
    play,
    random_history,
    worlds,
)

MakeHistory = Callable[[int], tuple[World, list[Event]]]

_CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large]


def live_through(world: World, history: list[Event]) -> None:
    simulation = play(world, history)
    assert_snapshots_end_chunks(world, simulation.plans)
    bad = bad_requests(history)
    counted = 0
    for request_id, answer in simulation.answers.items():
        assert answer.end is not None
        if answer.end.finish is FinishReason.ERROR and answer.end.error_status != 400:
            assert request_id in bad
            assert "layer 3" in answer.end.error and "step" in answer.end.error
        counted += len(simulation.tokens(request_id))
    stats = simulation.scheduler.stats()
    finishes = [answer.end.finish for answer in simulation.answers.values() if answer.end]
    assert stats.aborts == finishes.count(FinishReason.ABORT)
    assert stats.output_tokens == counted
    # Who ended before its first output was not told what it found cached.
    told = [answer.cached_tokens for answer in simulation.answers.values()]
    said = sum(count for count in told if count >= 0)
    assert stats.cached_tokens == said or (-1 in told and stats.cached_tokens > said)


def assert_snapshots_end_chunks(world: World, plans: list[StepPlan]) -> None:
    """No place is written twice in a plan, none is outside the pool, restores are of hits only."""
    for plan in plans:
        saved = [row.snapshot for row in plan.prefill if row.snapshot >= 0]
        assert len(set(saved)) == len(saved)
        restored = [admit.restore for admit in plan.admits if admit.restore >= 0]
        assert all(place < (world.snapshots or 0) for place in saved + restored)
        if world.snapshots is not None:
            assert all((admit.cached > 0) == (admit.restore >= 0) for admit in plan.admits)


@pytest.mark.parametrize("seed", range(8))
def test_long_histories(seed: int) -> None:
    live_through(*random_history(seed))


@pytest.mark.parametrize("seed", range(4))
def test_long_histories_where_a_hit_needs_a_snapshot(seed: int) -> None:
    live_through(*hybrid_history(seed))


@pytest.mark.parametrize("seed", range(12))
def test_long_histories_with_drafts(seed: int) -> None:
    live_through(*drafting_history(seed))


def test_histories_with_drafts_have_what_there_is_of_them() -> None:
    """Numbers of drafts that change, also to 0 and back, windows of every outcome, ends within."""
    seen: Counter[str] = Counter()
    for seed in range(8):
        simulation = play(*drafting_history(seed))
        stats = simulation.scheduler.stats()
        assert stats.drafts is not None
        seen["changes"] += len({plan.draft_k for plan in simulation.plans if plan.verify}) > 2
        seen["gaps"] += stats.drafts.gaps
        seen["preemptions"] += stats.preemptions
        for window in simulation.windows:
            seen["none right"] += window.accepted == 0
            seen["all right"] += window.accepted == window.drafted > 1
            seen["ends within"] += window.judged == window.accepted < window.drafted
    assert min(seen.values()) >= 5 and len(seen) == 6, seen


@pytest.mark.parametrize("seed", [3, 8])
@pytest.mark.parametrize("make", [random_history, drafting_history])
def test_plans_depend_on_nothing_but_the_history(make: MakeHistory, seed: int) -> None:
    first, second = (play(*make(seed)) for _ in range(2))
    assert first.plans == second.plans and len(first.plans) > 50


@pytest.mark.slow
@pytest.mark.parametrize("block", range(3))
def test_many_long_histories(block: int) -> None:
    for seed in range(40 * (block + 1), 40 * (block + 2)):
        live_through(*random_history(seed))
        live_through(*hybrid_history(seed))
        live_through(*drafting_history(seed))


@settings(max_examples=60, suppress_health_check=_CHECKS)
@given(worlds, histories)
def test_histories(world: World, history: list[Event]) -> None:
    live_through(world, history)


@pytest.mark.slow
@settings(max_examples=800, suppress_health_check=_CHECKS)
@given(worlds, histories)
def test_many_histories(world: World, history: list[Event]) -> None:
    live_through(world, history)
