"""Hybrid models: where state is saved, who waits for it, what a hit is worth (G05, G07)."""

from __future__ import annotations

import pytest

from draftmark.core.request import Request
from draftmark.core.step import PrefillRow
from tests.cpu.scheduler.simulation import Simulation, make_request, prompt_of
from tests.cpu.scheduler.test_reports import preempt


def simulated(*, snapshots: int | None = 16, **options: object) -> Simulation:
    facts = {"num_pages": 400, "max_context": 2048, "prefill_tokens": 4096, **options}
    return Simulation(num_snapshots=snapshots, **facts)  # type: ignore[arg-type]


def branch(request_id: int, *, shared: int, unique: int, max_tokens: int = 4) -> Request:
    """A prompt whose first tokens others have too."""
    own = prompt_of(unique, salt=100 + request_id)
    return make_request(request_id, prompt=prompt_of(shared) + own, max_tokens=max_tokens)


def ran(simulation: Simulation, request: Request) -> int:
    """Run a request alone; its cached tokens."""
    simulation.add(request)
    simulation.run()
    return simulation.answers[request.id].cached_tokens


def rows(simulation: Simulation) -> list[PrefillRow]:
    return [row for plan in simulation.plans for row in plan.prefill]


def ends(simulation: Simulation) -> list[tuple[int, int]]:
    """(end, snapshot) of each chunk."""
    return [(row.start + len(row.ids), row.snapshot) for row in rows(simulation)]


def test_a_chunk_is_cut_where_state_is_saved() -> None:
    simulation = simulated()
    ran(simulation, make_request(1, prompt=prompt_of(200)))
    assert ends(simulation) == [(192, 0), (200, -1)]
    assert [row.lookahead >= 0 for row in rows(simulation)] == [True, False]


def test_the_cut_holds_whatever_the_budget_of_a_step() -> None:
    simulation = simulated(prefill_tokens=50)
    ran(simulation, make_request(1, prompt=prompt_of(200), history_tokens=130))
    assert ends(simulation) == [(50, -1), (100, -1), (128, 0), (178, -1), (200, -1)]


def test_long_prompts_leave_snapshots_on_the_way() -> None:
    simulation = simulated(snapshot_stride=256, prefill_tokens=200)
    ran(simulation, make_request(1, prompt=prompt_of(600)))
    saved = [(end, place) for end, place in ends(simulation) if place >= 0]
    assert saved == [(256, 0), (512, 1), (576, 2)]


@pytest.mark.parametrize("snapshots", [None, 0])
def test_nothing_is_cut_where_nothing_can_be_saved(snapshots: int | None) -> None:
    simulation = simulated(snapshots=snapshots)
    ran(simulation, make_request(1, prompt=prompt_of(200)))
    assert ends(simulation) == [(200, -1)]
    again = ran(simulation, make_request(2, prompt=prompt_of(200)))
    assert again == (192 if snapshots is None else 0)


def test_what_a_cut_chunk_leaves_is_another_prompts() -> None:
    simulation = simulated(prefill_tokens=256)
    simulation.add(*[make_request(i, prompt=prompt_of(500, salt=i)) for i in (1, 2)])
    plan = simulation.plan()
    assert plan is not None
    assert [len(row.ids) for row in plan.prefill] == [256]
    plan = simulation.plan()
    assert plan is not None
    assert [len(row.ids) for row in plan.prefill] == [192, 64]  # cut at 448
    simulation.run()
    simulation.check_answers()


def test_a_hit_begins_from_the_snapshot() -> None:
    simulation = simulated()
    assert ran(simulation, make_request(1, prompt=prompt_of(200))) == 0
    assert ran(simulation, make_request(2, prompt=prompt_of(200))) == 192
    (first,), (second,) = (plan.admits for plan in simulation.plans if plan.admits)
    assert (first.cached, first.restore) == (0, -1)
    assert (second.cached, second.restore) == (192, 0)
    stats = simulation.scheduler.stats()
    assert (stats.snapshots_total, stats.snapshots_used) == (16, 1)
    assert (stats.snapshot_saves, stats.snapshot_restores, stats.snapshot_evictions) == (1, 1, 0)


def test_without_a_place_the_prompt_runs_all_the_same() -> None:
    simulation = simulated(snapshots=1, prefill_tokens=200, max_in_flight=2)
    simulation.add(*[make_request(i, prompt=prompt_of(100, salt=i)) for i in (1, 2)])
    simulation.plan()
    simulation.run()
    saved = [place for _, place in ends(simulation) if place >= 0]
    assert saved == [0]
    simulation.check_answers()
    simulation.check_idle()


@pytest.mark.parametrize("shared", [320, 300])
def test_g05_a_shared_prefix_is_usable_from_the_third_request_on(shared: int) -> None:
    simulation = simulated()
    cached = [ran(simulation, branch(i, shared=shared, unique=520 - shared)) for i in range(10)]
    pages = shared // 16 * 16
    assert pages >= shared // 64 * 64
    assert cached == [0, 0, *[pages] * 8]
    stats = simulation.scheduler.stats()
    assert stats.matched_tokens == 9 * pages
    assert stats.cached_tokens == 8 * pages


def test_g05_another_branch_a_repeat_and_the_next_turn() -> None:
    simulation = simulated()
    for i in range(3):
        ran(simulation, branch(i, shared=320, unique=200))
    # An earlier branch: known from its second request on.
    cached = [ran(simulation, branch(10 + i, shared=300, unique=220)) for i in range(3)]
    assert cached == [0, 288, 288]
    repeat = simulation.requests[0].prompt_ids
    assert ran(simulation, make_request(20, prompt=repeat)) == 512
    before = repeat + simulation.tokens(20)
    turn = make_request(21, prompt=before + prompt_of(90, salt=7), history_tokens=len(before) + 80)
    assert ran(simulation, turn) == 512
    after = make_request(22, prompt=turn.prompt_ids + prompt_of(90, salt=8))
    assert ran(simulation, after) == (len(before) + 80) // 64 * 64
    simulation.check_answers()
    simulation.check_idle()


def test_a_history_hint_saves_what_the_next_turn_repeats() -> None:
    """Without it the snapshot lies in the generation prompt, which the next turn may not have."""
    for hint, usable in ((None, 0), (126, 64)):
        simulation = simulated()
        turn = make_request(1, prompt=prompt_of(130), history_tokens=hint)
        ran(simulation, turn)
        following = turn.prompt_ids[:126] + prompt_of(50, salt=3)
        assert ran(simulation, make_request(2, prompt=following)) == usable


def test_others_wait_for_a_snapshot_that_is_being_made() -> None:
    simulation = simulated(prefill_tokens=100, max_prefix_waits=50)
    simulation.add(*[make_request(i, prompt=prompt_of(400)) for i in range(4)])
    simulation.run()
    assert [simulation.answers[i].cached_tokens for i in range(4)] == [0, 384, 384, 384]
    simulation.check_answers()


def test_nobody_waits_for_one_that_leaves_no_snapshot_in_what_is_shared() -> None:
    simulation = simulated(max_prefix_waits=50)
    simulation.add(*[branch(i, shared=320, unique=200) for i in range(2)])
    plan = simulation.plan()
    assert plan is not None and len(plan.admits) == 2
    simulation.run()
    assert [simulation.answers[i].cached_tokens for i in range(2)] == [0, 0]


def test_a_writer_that_runs_known_pages_again_for_its_snapshot_is_waited_for() -> None:
    simulation = simulated(prefill_tokens=100, max_prefix_waits=50)
    ran(simulation, branch(0, shared=320, unique=200))
    simulation.add(*[branch(i, shared=320, unique=200) for i in range(1, 4)])
    simulation.run()
    assert [simulation.answers[i].cached_tokens for i in range(1, 4)] == [0, 320, 320]
    simulation.check_answers()


def test_a_bad_chunk_leaves_no_snapshot() -> None:
    simulation = simulated(bad={1: 40}, prefill_tokens=64, max_in_flight=3)
    ran(simulation, make_request(1, prompt=prompt_of(200)))
    stats = simulation.scheduler.stats()
    assert (stats.snapshots_used, stats.snapshot_saves) == (0, 0)
    assert ran(simulation, make_request(2, prompt=prompt_of(200))) == 0
    simulation.check_answers()


@pytest.mark.parametrize("outputs", [0, 1, 90])
def test_g07_a_resumed_request_begins_from_its_prompts_snapshot(outputs: int) -> None:
    simulation = simulated(max_in_flight=2)
    simulation.add(make_request(1, prompt=prompt_of(200), max_tokens=120, presence_penalty=1.0))
    for _ in range(2):
        while len(simulation.answers[1].tokens) < outputs or not simulation.plans:
            simulation.step()
        preempt(simulation, 1)
    simulation.run()
    simulation.check_answers()
    admits = [admit for plan in simulation.plans for admit in plan.admits]
    assert [admit.cached for admit in admits] == [0, 192, 192]
    # What it runs again of its own output leaves none.
    assert simulation.scheduler.stats().snapshot_saves == 1
    simulation.check_idle()
