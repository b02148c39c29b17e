"""Plans, results and ends of a few requests, looked at closely."""

from __future__ import annotations

import msgspec
import pytest

from draftmark.core.messages import RequestOutput
from draftmark.core.request import FinishReason
from draftmark.core.start import CostPoint
from draftmark.core.step import ResultRow, StepPlan
from tests.cpu.scheduler.simulation import Simulation, make_request, prompt_of
from tests.fakes.worker import expected

LENGTH, STOP, ABORT, ERROR = (
    FinishReason.LENGTH,
    FinishReason.STOP,
    FinishReason.ABORT,
    FinishReason.ERROR,
)


def shape(plan: StepPlan | None) -> tuple[int, int]:
    """(prefill tokens, verify rows)"""
    assert plan is not None
    return sum(len(row.ids) for row in plan.prefill), len(plan.verify)


@pytest.mark.parametrize("num_cohorts", [1, 2, 3, 4])
@pytest.mark.parametrize("max_in_flight", [1, 2, 3])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 32, 33, 100])
def test_a_request_alone_gives_what_is_expected(
    length: int, max_in_flight: int, num_cohorts: int
) -> None:
    simulation = Simulation(max_in_flight=max_in_flight, num_cohorts=num_cohorts)
    simulation.add(make_request(1, prompt=prompt_of(length), max_tokens=40, logprobs=0))
    simulation.run()
    simulation.check_answers()
    simulation.check_idle()
    assert simulation.finish_of(1) is LENGTH


@pytest.mark.parametrize("split", range(1, 41))
def test_chunked_is_whole_at_every_split(split: int) -> None:
    simulation = Simulation(prefill_tokens=split)
    request = make_request(1, prompt=prompt_of(40), max_tokens=3, prompt_logprobs=1)
    simulation.add(request)
    simulation.run()
    simulation.check_answers()
    assert len(simulation.plans) >= -(-40 // split)


def test_a_plan_says_everything_once() -> None:
    simulation = Simulation(prefill_tokens=20)
    request = make_request(
        5, prompt=prompt_of(30), max_tokens=7, stop_ids=[60], min_tokens=2, top_k=3, seed=9
    )
    simulation.add(request)
    first, second = simulation.plan(), simulation.plan()
    assert first is not None and second is not None
    (admit,) = first.admits
    assert (admit.request, admit.cached, admit.end, admit.min_end) == (5, 0, 37, 32)
    assert admit.stop_ids == (60,) and admit.sampling.seed == 9 and admit.sampling.top_k == 3
    assert admit.prompt_ids == admit.output_ids == []
    (delta,) = first.pages
    assert delta.first == 0 and len(delta.pages) == 2
    (chunk,) = first.prefill
    assert (chunk.start, len(chunk.ids), chunk.samples) == (0, 20, False)
    assert chunk.lookahead == request.prompt_ids[20]
    (last,) = second.prefill
    assert (last.start, last.ids, last.samples) == (20, request.prompt_ids[20:], True)
    assert last.is_last and not second.admits and not second.pages
    simulation.receive()
    third = simulation.plan()
    assert third is not None and shape(third) == (0, 1)
    assert (third.verify[0].slot, third.verify[0].generation) == (admit.slot, admit.generation)
    assert [plan.step for plan in simulation.plans] == [0, 1, 2]


def test_ids_travel_only_for_penalties() -> None:
    simulation = Simulation()
    simulation.add(make_request(1, prompt=[3, 4], frequency_penalty=1.0))
    plan = simulation.plan()
    assert plan is not None and plan.admits[0].prompt_ids == [3, 4]


@pytest.mark.parametrize("num_cohorts", [1, 2, 3])
@pytest.mark.parametrize("max_in_flight", [1, 2, 3])
def test_plans_run_ahead_as_far_as_they_may(max_in_flight: int, num_cohorts: int) -> None:
    """Turns count: what one cohort alone is planned ahead is its share."""
    simulation = Simulation(max_in_flight=max_in_flight, num_cohorts=num_cohorts)
    simulation.add(make_request(1, prompt=prompt_of(4), max_tokens=20))
    ahead = -(-max_in_flight // num_cohorts)
    assert [simulation.plan() is not None for _ in range(ahead + 1)] == [True] * ahead + [False]
    assert simulation.scheduler.in_flight == ahead
    simulation.receive()
    assert simulation.plan() is not None


def test_plans_are_blind() -> None:
    """What the device samples shows in no plan that was made before the result came."""
    plans = []
    for stop_ids in ([], range(61)):
        simulation = Simulation(max_in_flight=3)
        request = make_request(1, prompt=prompt_of(15), max_tokens=20, stop_ids=stop_ids)
        simulation.add(request)
        while simulation.plan() is not None:
            pass
        bare = [msgspec.structs.replace(plan, admits=[]) for plan in simulation.plans]
        plans.append(bare)
        simulation.run()
        simulation.check_answers()
    assert plans[0] == plans[1]


@pytest.mark.parametrize("num_cohorts", [1, 2, 4])
@pytest.mark.parametrize("max_in_flight", [1, 2, 3])
@pytest.mark.parametrize("max_tokens", [0, 1, 2, 5, 18])
def test_no_row_is_planned_past_the_end(
    max_tokens: int, max_in_flight: int, num_cohorts: int
) -> None:
    simulation = Simulation(max_in_flight=max_in_flight, num_cohorts=num_cohorts)
    simulation.add(make_request(1, prompt=prompt_of(15), max_tokens=max_tokens))
    simulation.run()
    simulation.check_answers()
    assert simulation.worker.rows_of[1] == max(1, max_tokens)
    assert simulation.scheduler.stats().overrun_tokens == 0


@pytest.mark.parametrize("num_cohorts", [1, 2, 4])
@pytest.mark.parametrize("max_in_flight", [1, 2, 3])
def test_a_stop_id_costs_only_the_rows_in_flight(max_in_flight: int, num_cohorts: int) -> None:
    simulation = Simulation(max_in_flight=max_in_flight, num_cohorts=num_cohorts)
    plain = make_request(1, prompt=prompt_of(15), max_tokens=20)
    stop = expected(plain).tokens[4]
    simulation.add(msgspec.structs.replace(plain, stop_ids=(stop,)))
    simulation.run()
    simulation.check_answers()
    simulation.check_idle()
    count = expected(plain).tokens.index(stop) + 1
    assert len(simulation.tokens(1)) == count
    assert simulation.worker.rows_of[1] <= count + max_in_flight - 1
    assert simulation.finish_of(1) is STOP


def test_echo_alone_runs_the_prompt_and_emits_nothing() -> None:
    simulation = Simulation(prefill_tokens=16)
    simulation.add(make_request(1, prompt=prompt_of(40), max_tokens=0, prompt_logprobs=3))
    simulation.run()
    simulation.check_answers()
    simulation.check_idle()
    answer = simulation.answers[1]
    assert answer.outputs == 1 and simulation.finish_of(1) is LENGTH
    assert answer.prompt_logprobs is not None and len(answer.prompt_logprobs) == 39
    assert not any(row.samples for plan in simulation.plans for row in plan.prefill)


def test_prompt_logprobs_come_once_with_the_first_output() -> None:
    simulation = Simulation(prefill_tokens=16, max_in_flight=1)
    simulation.add(make_request(1, prompt=prompt_of(40), max_tokens=4, prompt_logprobs=0))
    outputs: list[RequestOutput] = []
    while simulation.scheduler.has_work:
        plan = simulation.scheduler.plan()
        assert plan is not None
        outputs += simulation.scheduler.commit(simulation.worker.execute(plan))
    assert [output.prompt_logprobs is not None for output in outputs] == [True, False, False, False]
    assert [output.cached_tokens for output in outputs] == [0, -1, -1, -1]


def test_prompt_logprobs_bypass_the_cache() -> None:
    simulation = Simulation()
    for request_id, wanted in ((1, None), (2, 1), (3, None)):
        simulation.add(
            make_request(request_id, prompt=prompt_of(40), max_tokens=2, prompt_logprobs=wanted)
        )
        simulation.run()
    simulation.check_answers()
    simulation.check_idle()
    assert [simulation.answers[i].cached_tokens for i in (1, 2, 3)] == [0, 0, 32]


def test_several_prompts_share_a_step() -> None:
    simulation = Simulation(prefill_tokens=64)
    simulation.add(*[make_request(i, prompt=prompt_of(20, salt=i)) for i in range(4)])
    assert shape(simulation.plan()) == (64, 0)
    assert shape(simulation.plan()) == (16, 3)


def test_running_is_capped() -> None:
    simulation = Simulation(max_running=2, prefill_tokens=512)
    simulation.add(*[make_request(i, prompt=prompt_of(5, salt=i)) for i in range(4)])
    for _ in range(60):
        simulation.step()
        assert simulation.scheduler.stats().running <= 2
    simulation.run()
    simulation.check_answers()


def test_lower_priority_numbers_run_first_then_arrival() -> None:
    simulation = Simulation(max_running=1, max_in_flight=1)
    for request_id, priority in ((1, 0), (2, 5), (3, 0), (4, -1)):
        request = make_request(
            request_id, prompt=prompt_of(5, salt=request_id), max_tokens=2, priority=priority
        )
        simulation.add(request)
    simulation.run()
    admitted = [admit.request for plan in simulation.plans for admit in plan.admits]
    assert admitted == [4, 1, 3, 2]


def test_more_requests_than_slots_and_one_slot_is_enough() -> None:
    simulation = Simulation(num_slots=2, max_running=1, max_in_flight=2)
    requests = [make_request(i, prompt=prompt_of(5, salt=i), max_tokens=2) for i in range(5)]
    simulation.add(*requests)
    simulation.run()
    simulation.check_answers()
    simulation.check_idle()
    generations = [admit.generation for plan in simulation.plans for admit in plan.admits]
    assert generations == [1, 2, 3, 4, 5]


def test_an_equal_prompt_waits_for_the_first_ones_pages() -> None:
    simulation = Simulation(prefill_tokens=512)
    simulation.add(*[make_request(i, prompt=prompt_of(100), seed=i) for i in range(3)])
    assert shape(simulation.plan()) == (100, 0)
    simulation.run()
    simulation.check_answers()
    assert [simulation.answers[i].cached_tokens for i in range(3)] == [0, 96, 96]
    stats = simulation.scheduler.stats()
    assert (stats.prompt_tokens, stats.cached_tokens) == (300, 192)


def test_nobody_waits_for_a_little() -> None:
    simulation = Simulation(prefill_tokens=512, min_shared_tokens=64)
    simulation.add(*[make_request(i, prompt=prompt_of(60)) for i in range(3)])
    assert shape(simulation.plan()) == (180, 0)
    simulation.run()
    simulation.check_answers()
    simulation.check_idle()


def test_the_wait_is_bounded_and_others_pass() -> None:
    simulation = Simulation(prefill_tokens=8, max_prefix_waits=3, max_in_flight=1)
    simulation.add(*[make_request(i, prompt=prompt_of(200)) for i in range(2)])
    simulation.add(make_request(2, prompt=prompt_of(3, salt=9)))
    admitted = []
    for _ in range(6):
        plan = simulation.plan()
        assert plan is not None
        admitted += [(plan.step, admit.request) for admit in plan.admits]
        simulation.receive()
    assert admitted[:2] == [(0, 0), (0, 2)]
    simulation.run()
    simulation.check_answers()
    steps = {admit.request: plan.step for plan in simulation.plans for admit in plan.admits}
    assert steps[1] > 3


def test_the_turn_is_kept_while_something_decodes() -> None:
    costs = [CostPoint(1, 0, 0, 2.0), CostPoint(8, 0, 0, 16.0)]
    costs += [CostPoint(0, n, 0, float(n)) for n in (16, 64, 256)]
    simulation = Simulation(prefill_tokens=256, max_turn_ms=42.0, cost_table=costs)
    simulation.add(make_request(1, prompt=prompt_of(10), max_tokens=40))
    simulation.step()
    simulation.step()
    simulation.add(make_request(2, prompt=prompt_of(300, salt=1), max_tokens=3))
    assert shape(simulation.plan()) == (40, 1)
    simulation.run()
    simulation.check_answers()


@pytest.mark.parametrize("num_cohorts", [1, 2])
@pytest.mark.parametrize("known", [3, 6])
@pytest.mark.parametrize("max_in_flight", [1, 2, 3])
def test_a_host_end_cuts_at_its_index(known: int, max_in_flight: int, num_cohorts: int) -> None:
    simulation = Simulation(max_in_flight=max_in_flight, num_cohorts=num_cohorts)
    simulation.add(make_request(1, prompt=prompt_of(10), max_tokens=30, stop=["x"]))
    while len(simulation.answers[1].tokens) < known:
        simulation.step()
    simulation.finish(1, 3, STOP)
    assert simulation.finish_of(1) is STOP and simulation.answers[1].end is not None
    assert simulation.answers[1].end.token_ids == []
    simulation.run()
    simulation.check_answers()
    simulation.check_idle()
    stats = simulation.scheduler.stats()
    assert stats.output_tokens == 3
    assert stats.overrun_tokens == simulation.worker.rows_of[1] - 3
    assert len(simulation.answers[1].tokens) == known


def test_a_host_end_ahead_of_what_is_known_waits_for_it() -> None:
    simulation = Simulation()
    simulation.add(make_request(1, prompt=prompt_of(10), max_tokens=30))
    simulation.finish(1, 9, STOP)
    simulation.finish(1, 6, LENGTH)
    simulation.finish(1, 8, STOP)
    simulation.run()
    assert len(simulation.answers[1].tokens) == 6
    assert simulation.finish_of(1) is LENGTH
    simulation.check_answers()
    simulation.check_idle()


def test_the_device_end_wins_when_it_comes_first() -> None:
    simulation = Simulation()
    simulation.add(make_request(1, prompt=prompt_of(10), max_tokens=4))
    simulation.finish(1, 6, STOP)
    simulation.run()
    assert simulation.finish_of(1) is LENGTH
    assert simulation.scheduler.finish(1, 2, STOP) == []
    simulation.check_idle()


def test_ends_of_unknown_requests_are_ignored() -> None:
    simulation = Simulation()
    scheduler = simulation.scheduler
    assert scheduler.abort([7]) == scheduler.finish(7, 1, STOP) == scheduler.fail(7, "x") == []
    assert not scheduler.has_work and scheduler.plan() is None


def test_fail_all_ends_everything_once() -> None:
    simulation = Simulation(max_running=2)
    simulation.add(*[make_request(i, prompt=prompt_of(5, salt=i)) for i in range(4)])
    simulation.step()
    outputs = simulation.scheduler.fail_all("the worker is gone", status=503)
    assert sorted(output.id for output in outputs) == [0, 1, 2, 3]
    assert {(o.finish, o.error, o.error_status) for o in outputs} == {
        (ERROR, "the worker is gone", 503)
    }
    while simulation.receive():
        pass
    assert not simulation.scheduler.has_work
    simulation.check_idle()


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "message"),
    [
        (0, 5, "empty"),
        (64, 5, "context is 64"),
        (65, 0, "context is 64"),
        (49, 1, "KV pool holds 48"),
        (40, 20, "the answer may have 20"),
    ],
)
def test_what_never_fits_is_refused_at_once(prompt: int, max_tokens: int, message: str) -> None:
    simulation = Simulation(num_pages=4, max_context=64)
    simulation.add(make_request(1, prompt=prompt_of(prompt), max_tokens=max_tokens))
    end = simulation.answers[1].end
    assert end is not None and (end.finish, end.error_status) == (ERROR, 400)
    assert message in end.error
    assert not simulation.scheduler.has_work


def test_one_choice_that_never_fits_refuses_the_whole_call() -> None:
    simulation = Simulation(num_pages=4, max_context=64)
    simulation.add(make_request(1, prompt=[1]), make_request(2, prompt=prompt_of(60)))
    assert [simulation.finish_of(i) for i in (1, 2)] == [ERROR, ERROR]


def test_what_just_fits_runs() -> None:
    simulation = Simulation(num_pages=4, max_context=64)
    for request_id, (length, max_tokens) in enumerate([(48, 0), (47, 1), (1, 47), (20, None)]):
        simulation.add(make_request(request_id, prompt=prompt_of(length), max_tokens=max_tokens))
        simulation.run()
    assert [len(simulation.tokens(i)) for i in range(4)] == [0, 1, 47, 28]
    simulation.check_idle()


def test_the_context_cuts_like_max_tokens() -> None:
    simulation = Simulation(max_context=64)
    simulation.add(make_request(1, prompt=prompt_of(60), max_tokens=100))
    simulation.run()
    simulation.check_answers()
    assert len(simulation.tokens(1)) == 4 and simulation.finish_of(1) is LENGTH


@pytest.mark.parametrize("position", [3, 20, 39, 40, 45])
@pytest.mark.parametrize("max_in_flight", [1, 2, 3])
def test_a_value_that_is_not_finite_ends_its_request_alone(
    position: int, max_in_flight: int
) -> None:
    simulation = Simulation(prefill_tokens=16, max_in_flight=max_in_flight, bad={1: position})
    simulation.add(make_request(1, prompt=prompt_of(40), max_tokens=20))
    simulation.add(make_request(2, prompt=prompt_of(40), max_tokens=20))
    simulation.run()
    end = simulation.answers[1].end
    assert end is not None and end.finish is ERROR and end.error_status == 500
    for word in ("layer 3", "step ", "row ", "slot "):
        assert word in end.error
    assert simulation.finish_of(2) is LENGTH
    simulation.check_answers()
    simulation.add(make_request(3, prompt=prompt_of(40), max_tokens=20, seed=8))
    simulation.run()
    simulation.check_answers()
    assert simulation.scheduler.stats().bad_rows >= 1
    simulation.check_idle()


def test_output_totals_never_fall() -> None:
    simulation = Simulation()
    simulation.add(make_request(1, prompt=prompt_of(5), max_tokens=30))
    for _ in range(10):
        simulation.step()
    before = simulation.scheduler.stats().output_tokens
    simulation.finish(1, 2, STOP)
    assert simulation.scheduler.stats().output_tokens == before > 2
    simulation.run()


def test_reset_drops_what_nobody_uses() -> None:
    simulation = Simulation()
    simulation.add(make_request(1, prompt=prompt_of(50), max_tokens=2))
    simulation.run()
    simulation.add(make_request(2, prompt=prompt_of(50, salt=1), max_tokens=60))
    for _ in range(8):
        simulation.step()
    assert simulation.scheduler.reset_cache() == 3
    simulation.run()
    simulation.check_answers()
    simulation.check_idle()


def planned_alone(**request: object) -> tuple[Simulation, StepPlan]:
    simulation = Simulation()
    simulation.add(make_request(1, prompt=[1, 2, 3], **{"max_tokens": 8, **request}))  # type: ignore[arg-type]
    plan = simulation.scheduler.plan()
    assert plan is not None
    return simulation, plan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": 1}, "result of step 1"),
        ({"rows": []}, "0 rows"),
        ({"bad_prefill": [(5, 1, 0)]}, "not in its plan"),
    ],
)
def test_a_result_that_is_not_the_plans_raises(change: dict[str, object], message: str) -> None:
    simulation, plan = planned_alone()
    result = simulation.worker.execute(plan)
    with pytest.raises(AssertionError, match=message):
        simulation.scheduler.commit(msgspec.structs.replace(result, **change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"generation": 2}, "generation 2"),
        ({"slot": 2}, "slot 2"),
        ({"emitted": []}, "0 emitted"),
        ({"length": 7}, "length 7"),
        ({"done": True}, "ended for no reason"),
    ],
)
def test_a_row_that_contradicts_the_plan_raises(change: dict[str, object], message: str) -> None:
    simulation, plan = planned_alone()
    result = simulation.worker.execute(plan)
    row = msgspec.structs.replace(result.rows[0], **change)
    with pytest.raises(AssertionError, match=message):
        simulation.scheduler.commit(msgspec.structs.replace(result, rows=[row]))


def test_a_result_without_a_plan_raises() -> None:
    simulation, plan = planned_alone()
    result = simulation.worker.execute(plan)
    simulation.scheduler.commit(result)
    with pytest.raises(AssertionError, match="no plan is in flight"):
        simulation.scheduler.commit(result)


def test_a_row_that_runs_past_its_end_raises() -> None:
    simulation, plan = planned_alone(max_tokens=1)
    result = simulation.worker.execute(plan)
    row = msgspec.structs.replace(result.rows[0], done=False)
    with pytest.raises(AssertionError, match="past its end"):
        simulation.scheduler.commit(msgspec.structs.replace(result, rows=[row]))


def test_waiting_without_progress_raises_with_the_state() -> None:
    simulation = Simulation(num_pages=4)
    simulation.add(make_request(1, prompt=prompt_of(20)))
    simulation.manager.pages.take(3)  # pages that nobody will give back
    with pytest.raises(AssertionError, match=r"no progress is possible: .* 1 waiting"):
        simulation.scheduler.plan()


def test_a_live_id_is_not_taken_twice() -> None:
    simulation = Simulation()
    simulation.add(make_request(1, prompt=[1]))
    with pytest.raises(AssertionError, match="live already"):
        simulation.scheduler.add([make_request(1, prompt=[1])])


def rows_with(
    tokens: list[int], *, end: int, stop_ids: tuple[int, ...] = (), finish_at: int | None = None
) -> RequestOutput:
    """What the host makes of a first row with several tokens, truncated by the device."""
    simulation, plan = planned_alone(max_tokens=end, stop_ids=stop_ids)
    if finish_at is not None:
        simulation.scheduler.finish(1, finish_at, STOP)
    (chunk,) = plan.prefill
    done = len(tokens) == end or tokens[-1] in stop_ids
    row = ResultRow(chunk.slot, chunk.generation, tokens, 2 + len(tokens), 0, done)
    result = simulation.worker.execute(plan)
    (output,) = simulation.scheduler.commit(msgspec.structs.replace(result, rows=[row]))
    return output


@pytest.mark.parametrize(
    ("tokens", "end", "stop_ids", "finish"),
    [
        ([9], 5, (9,), STOP),
        ([4, 5, 9], 5, (9,), STOP),
        ([4, 5, 6], 3, (9,), LENGTH),
        ([4, 5, 9], 3, (9,), STOP),  # the stop id is the last token that is allowed
        ([4, 5, 6], 5, (9,), None),
    ],
)
def test_a_row_of_several_tokens(
    tokens: list[int], end: int, stop_ids: tuple[int, ...], finish: FinishReason | None
) -> None:
    output = rows_with(tokens, end=end, stop_ids=stop_ids)
    assert (output.token_ids, output.finish) == (tokens, finish)


@pytest.mark.parametrize(
    ("finish_at", "tokens", "finish"),
    [(1, [4], STOP), (2, [4, 5], STOP), (3, [4, 5, 6], LENGTH), (4, [4, 5, 6], LENGTH)],
)
def test_a_host_end_inside_a_row_of_several_tokens(
    finish_at: int, tokens: list[int], finish: FinishReason
) -> None:
    output = rows_with([4, 5, 6], end=3, finish_at=finish_at)
    assert (output.token_ids, output.finish) == (tokens, finish)
