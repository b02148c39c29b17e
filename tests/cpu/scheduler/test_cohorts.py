"""Cohorts: whose turn a step is, who is in which, how rows and prompts are spread."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from draftmark.core.start import CostPoint
from draftmark.core.step import StepPlan
from draftmark.scheduler.cohorts import ROUNDS_BETWEEN_MOVES
from draftmark.scheduler.policy import is_uneven
from tests.cpu.scheduler.simulation import Simulation, make_request, prompt_of


def big(num_cohorts: int, *, max_running: int = 64, **limits: object) -> Simulation:
    """Room for everybody."""
    arguments = {"prefill_tokens": 256, "max_context": 2048, **limits}
    return Simulation(
        num_pages=64 * 40,
        num_slots=2 * max_running,
        max_running=max_running,
        num_cohorts=num_cohorts,
        **arguments,  # type: ignore[arg-type]
    )


def rows_of(simulation: Simulation) -> list[int]:
    return [rows for rows, _ in simulation.scheduler.cohort_loads()]


def add(simulation: Simulation, ids: range, *, length: int = 20, max_tokens: int = 100) -> None:
    simulation.add(
        *[make_request(i, prompt=prompt_of(length, salt=i), max_tokens=max_tokens) for i in ids]
    )


def settle(simulation: Simulation, *, steps: int = 12) -> None:
    """Steps enough for short prompts, and for rows to be in turns."""
    for _ in range(steps):
        simulation.step()


def tokens_of(plan: StepPlan) -> int:
    return sum(len(row.ids) for row in plan.prefill)


def requests_of(plans: list[StepPlan]) -> list[tuple[StepPlan, list[int]]]:
    """Each plan with the requests that have a verify row in it."""
    holder: dict[tuple[int, int], int] = {}
    found = []
    for plan in plans:
        holder.update({(a.slot, a.generation): a.request for a in plan.admits})
        found.append((plan, [holder[row.slot, row.generation] for row in plan.verify]))
    return found


@pytest.mark.parametrize("num_cohorts", [1, 2, 3, 4])
def test_a_step_is_the_turn_of_its_cohort(num_cohorts: int) -> None:
    simulation = big(num_cohorts)
    add(simulation, range(12), max_tokens=30)
    simulation.run()
    simulation.check_answers()
    simulation.check_idle()
    steps = [plan.step for plan in simulation.plans]
    assert all(plan.cohort == plan.step % num_cohorts for plan in simulation.plans)
    assert all(before < after for before, after in pairwise(steps))
    cohorts: dict[int, set[int]] = {}
    for plan, requests in requests_of(simulation.plans):
        for request in requests:
            cohorts.setdefault(request, set()).add(plan.cohort)
    assert all(len(found) == 1 for found in cohorts.values())


@pytest.mark.parametrize("num_cohorts", [2, 4])
@pytest.mark.parametrize("prefill_tokens", [100, 2048])
def test_a_burst_of_equal_prompts_is_spread_evenly(num_cohorts: int, prefill_tokens: int) -> None:
    simulation = big(num_cohorts, prefill_tokens=prefill_tokens)
    simulation.checks = False
    simulation.add(*[make_request(i, prompt=prompt_of(20), seed=i) for i in range(64)])
    most = 0
    while simulation.scheduler.has_work:
        simulation.step()
        rows = rows_of(simulation)
        if sum(rows) > most:  # they only come so far
            most = sum(rows)
            assert max(rows) - min(rows) <= 1
    assert most == 64 or prefill_tokens < 2048
    simulation.check_answers()
    simulation.check_idle()


def test_of_equal_cohorts_the_turns_own_gets_the_row_so_that_it_verifies_soonest() -> None:
    simulation = big(3, max_in_flight=13)
    add(simulation, range(1))
    while simulation.plan() is not None:
        pass
    assert [(p.step, tokens_of(p), len(p.verify)) for p in simulation.plans] == [
        (0, 20, 0),
        (3, 0, 1),
        (6, 0, 1),
        (9, 0, 1),
        (12, 0, 1),
    ]


@pytest.mark.slow
def test_of_cohorts_with_equal_rows_the_one_with_less_kv_gets_the_row() -> None:
    simulation = big(2, prefill_tokens=200)
    simulation.add(make_request(0, prompt=prompt_of(200), max_tokens=500))
    settle(simulation)
    simulation.add(make_request(1, prompt=prompt_of(100, salt=1), max_tokens=500))
    settle(simulation)
    simulation.add(make_request(2, prompt=prompt_of(9, salt=2), max_tokens=500))
    settle(simulation)
    loads = simulation.scheduler.cohort_loads()
    assert sorted(rows for rows, _ in loads) == [1, 2]
    assert min(loads)[1] > 200
    simulation.run()
    simulation.check_answers()


@pytest.mark.parametrize("num_cohorts", [2, 3, 4])
@pytest.mark.parametrize(
    ("num_rows", "max_drafts"), [(4, 0), (17, 3), pytest.param(40, 0, marks=pytest.mark.slow)]
)
def test_rows_move_when_a_cohort_runs_empty(
    num_cohorts: int, num_rows: int, max_drafts: int
) -> None:
    simulation = big(num_cohorts, max_drafts=max_drafts)
    add(simulation, range(num_rows))
    settle(simulation)
    simulation.abort(*{i for p, ids in requests_of(simulation.plans) if not p.cohort for i in ids})
    assert rows_of(simulation)[0] == 0
    settle(simulation, steps=2)
    assert not is_uneven(rows_of(simulation))
    simulation.run()
    simulation.check_answers()
    simulation.check_drafts()
    simulation.check_idle()


def test_the_rows_that_move_are_those_that_even_the_tokens_of_kv() -> None:
    simulation = big(2, prefill_tokens=2000)
    lengths = [50, 900, 60, 300, 70, 40, 80, 30]
    for i, length in enumerate(lengths):
        simulation.add(make_request(i, prompt=prompt_of(length, salt=i), max_tokens=99))
        settle(simulation, steps=2)
    cohorts = {i: p.cohort for p, ids in requests_of(simulation.plans) for i in ids}
    long = cohorts[1]
    simulation.abort(*[i for i, cohort in cohorts.items() if cohort != long])
    settle(simulation, steps=2)
    loads = simulation.scheduler.cohort_loads()
    assert sorted(rows for rows, _ in loads) == [2, 2]
    # The long one alone outweighs the rest: it is left with the shortest.
    kept = [i for i, cohort in cohorts.items() if cohort == long and i != 1]
    others = sorted(lengths[i] for i in kept)
    assert max(tokens for _, tokens in loads) < 900 + others[0] + 40
    simulation.run()
    simulation.check_answers()


@pytest.mark.parametrize("num_cohorts", [2, 3])
def test_a_row_moves_at_most_once_in_32_rounds(num_cohorts: int) -> None:
    simulation = big(num_cohorts)
    simulation.checks = False
    draw = random.Random(num_cohorts)
    add(simulation, range(48), max_tokens=600)
    for turn in range(600):
        simulation.step()
        if turn % 10 == 9:  # always from the cohort that has the fewest
            rows = rows_of(simulation)
            least = simulation.scheduler._roster.cohorts.all[rows.index(min(rows))].rows
            if least:
                simulation.abort(draw.choice(least).id)
    simulation.run()
    simulation.check_answers()
    last: dict[int, tuple[int, int]] = {}  # request -> cohort, step of its last move
    moves = 0
    for plan, requests in requests_of(simulation.plans):
        for request in requests:
            cohort, moved = last.get(request, (plan.cohort, -1))
            if cohort != plan.cohort:
                # A move shows at the row's next turn: up to two rounds after it was decided.
                rounds = (plan.step - moved) / num_cohorts
                assert moved < 0 or rounds > ROUNDS_BETWEEN_MOVES - 2
                moves, moved = moves + 1, plan.step
            last[request] = (plan.cohort, moved)
    assert moves > 10


@pytest.mark.parametrize("num_cohorts", [1, 2, 3, 4])
def test_chunks_of_a_prompt_are_in_consecutive_steps(num_cohorts: int) -> None:
    simulation = big(num_cohorts, prefill_tokens=64)
    simulation.add(make_request(0, prompt=prompt_of(600), max_tokens=3))
    simulation.run()
    simulation.check_answers()
    chunks = [plan.step for plan in simulation.plans if plan.prefill]
    assert chunks == list(range(10))
    assert {plan.step: plan.cohort for plan in simulation.plans}[9] == 9 % num_cohorts


@pytest.mark.parametrize("num_cohorts", [2, 3, 4])
def test_every_turn_of_a_round_takes_as_much_prompt(num_cohorts: int) -> None:
    """Cohorts that differ by a row, whose own budgets would differ by 20 tokens."""
    costs = [CostPoint(rows, 0, 0, 20.0 * rows) for rows in (1, 8)]
    costs += [CostPoint(0, tokens, 0, float(tokens)) for tokens in (16, 256)]
    simulation = big(num_cohorts, max_turn_ms=90.0, cost_table=costs)
    add(simulation, range(num_cohorts + 1), max_tokens=60)
    settle(simulation)
    assert sorted(rows_of(simulation)) == [1] * (num_cohorts - 1) + [2]
    before = len(simulation.plans)
    simulation.add(make_request(99, prompt=prompt_of(700, salt=99), max_tokens=2))
    simulation.run()
    simulation.check_answers()
    tokens = [tokens_of(plan) for plan in simulation.plans[before:] if plan.prefill]
    assert set(tokens[:-1]) == {50} and sum(tokens) == 700


@pytest.mark.parametrize(("num_cohorts", "parts"), [(1, [2000]), (2, [1000] * 2), (4, [500] * 4)])
def test_what_less_than_a_round_can_take_is_divided(num_cohorts: int, parts: list[int]) -> None:
    simulation = big(num_cohorts, prefill_tokens=2048)
    simulation.add(make_request(0, prompt=prompt_of(2000), max_tokens=2))
    simulation.run()
    assert [tokens_of(plan) for plan in simulation.plans if plan.prefill] == parts


def test_prompts_that_come_during_a_round_do_not_change_its_parts() -> None:
    simulation = big(4, prefill_tokens=2000)
    simulation.add(make_request(0, prompt=prompt_of(1200), max_tokens=2))
    plans = [simulation.plan()]
    simulation.add(make_request(1, prompt=prompt_of(1600, salt=1), max_tokens=2))
    plans += [simulation.plan() for _ in range(4)]
    assert [tokens_of(plan) for plan in plans if plan] == [300] * 4 + [400]
    simulation.run()
    simulation.check_answers()


@pytest.mark.parametrize("num_cohorts", [2, 3, 4])
def test_turns_with_nothing_to_run_are_left_out(num_cohorts: int) -> None:
    simulation = big(num_cohorts, max_in_flight=num_cohorts + 2)
    add(simulation, range(1), max_tokens=40)
    for _ in range(10):
        simulation.step()
    steps = [plan.step for plan in simulation.plans]
    assert len(steps) > 8 and all(b - a == num_cohorts for a, b in pairwise(steps))
    simulation.run()
    simulation.check_answers()


@pytest.mark.parametrize("num_cohorts", [1, 2, 3, 4])
def test_ids_jump_over_a_round_when_nothing_is_in_flight(num_cohorts: int) -> None:
    simulation = big(num_cohorts, max_in_flight=1)
    add(simulation, range(num_cohorts), max_tokens=6)
    simulation.run()
    simulation.check_answers()
    steps = [plan.step for plan in simulation.plans]
    assert steps == [i * (num_cohorts + 1) for i in range(1 + 5 * num_cohorts)]


@pytest.mark.parametrize("num_cohorts", [1, 2, 3, 4])
def test_one_slot_is_reused_at_once_when_nothing_is_in_flight(num_cohorts: int) -> None:
    simulation = Simulation(num_slots=2, max_running=1, num_cohorts=num_cohorts)
    add(simulation, range(4), max_tokens=2)
    simulation.run()
    simulation.check_answers()
    simulation.check_idle()
    # Each one's prompt and its one verify row, and no more plans than that.
    assert len(simulation.plans) == 8
    assert [len(plan.admits) for plan in simulation.plans] == [1, 0] * 4


@pytest.mark.parametrize("num_cohorts", [1, 2, 3, 4])
def test_a_slot_rests_while_others_run(num_cohorts: int) -> None:
    simulation = Simulation(num_slots=3, max_running=2, num_cohorts=num_cohorts, max_context=512)
    simulation.add(make_request(0, prompt=prompt_of(5), max_tokens=300))
    add(simulation, range(1, 20), length=5, max_tokens=4)
    simulation.run()
    simulation.check_answers()
    last: dict[int, int] = {}
    rests = []
    for plan in simulation.plans:
        rests += [plan.step - last[admit.slot] for admit in plan.admits if admit.slot in last]
        last.update({row.slot: plan.step for row in (*plan.prefill, *plan.verify)})
    assert len(rests) == 18 and min(rests) > num_cohorts


@pytest.mark.parametrize("num_cohorts", [2, 3])
def test_slots_must_rest_for_as_many_cohorts_as_there_are(num_cohorts: int) -> None:
    manager = Simulation(num_cohorts=1).manager
    with pytest.raises(AssertionError, match="another number of cohorts"):
        Simulation(num_cohorts=num_cohorts, manager=manager)


def test_check_finds_a_row_that_is_planned_too_soon() -> None:
    simulation = big(2)
    add(simulation, range(4))
    settle(simulation)
    for step in simulation.scheduler._steps:
        step.step //= 2
    with pytest.raises(AssertionError):
        simulation.scheduler.check()


def test_check_finds_a_row_in_the_wrong_cohort() -> None:
    simulation = big(2)
    add(simulation, range(4))
    settle(simulation)
    simulation.scheduler._roster.cohorts.all[0].rows[0].cohort = 1
    with pytest.raises(AssertionError):
        simulation.scheduler.check()
