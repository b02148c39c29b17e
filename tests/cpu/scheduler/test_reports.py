"""Public reports about other engines, as cases for this scheduler.

G01 a request that never fits blocks all; G03 preemption under pressure; G04 prefill starves decodes
or short prompts; G07 resume forgets; D07 aborts that leak. (F04 is in `test_scheduler`.)
"""

from __future__ import annotations

import pytest

from draftmark.core.request import FinishReason, Request
from draftmark.scheduler.queue import State
from tests.cpu.scheduler.simulation import Simulation, make_request, prompt_of


def test_g01_a_prompt_beyond_the_pool_is_refused_and_blocks_nobody() -> None:
    simulation = Simulation(num_pages=65, max_context=4096)
    simulation.add(make_request(0, prompt=prompt_of(2000)))
    simulation.add(*[make_request(i, prompt=prompt_of(50, salt=i)) for i in range(1, 6)])
    end = simulation.answers[0].end
    assert end is not None and end.error_status == 400
    assert "2000" in end.error and "1024" in end.error
    simulation.run()
    assert [simulation.finish_of(i) for i in range(1, 6)] == [FinishReason.LENGTH] * 5
    simulation.check_answers()
    simulation.check_idle()


@pytest.mark.parametrize("scale", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_g03_preemption_under_pressure(scale: int) -> None:
    prompt, output = 200 // scale, 400 // scale
    pages = int(2.5 * (prompt + output) / 16)
    simulation = Simulation(num_pages=pages + 1, max_context=1024, prefill_tokens=128)
    simulation.checks = False
    steps = []
    for turn in range(3):
        before = simulation.scheduler.stats().steps
        for i in range(8):
            salt = 10 * turn + i
            request = make_request(salt, prompt=prompt_of(prompt, salt=salt), max_tokens=output)
            simulation.add(request)
        simulation.run()
        simulation.scheduler.check()
        assert simulation.manager.num_available == pages
        steps.append(simulation.scheduler.stats().steps - before)
    simulation.check_answers()
    stats = simulation.scheduler.stats()
    assert stats.output_tokens == 24 * output
    assert 0 < stats.preemptions <= 2 * 24
    assert max(steps) <= 1.1 * min(steps)
    simulation.check_idle()


def test_g04_a_long_prefill_starves_neither_decodes_nor_short_prompts() -> None:
    simulation = Simulation(
        num_pages=2300, num_slots=40, max_running=39, max_context=1 << 15, prefill_tokens=2048
    )
    simulation.checks = False
    simulation.add(make_request(0, prompt=prompt_of(10), max_tokens=120))
    for _ in range(3):
        simulation.step()
    simulation.add(make_request(1, prompt=prompt_of(32_000, salt=1), max_tokens=2))
    simulation.step()
    simulation.add(make_request(2, prompt=prompt_of(20, salt=2), max_tokens=2))
    start = simulation.scheduler.stats().steps
    tiny_at = long_at = None
    for turn in range(40):
        stream = len(simulation.answers[0].tokens)
        simulation.step()
        # Every committed step has a token for the stream: no gap is longer than one chunk.
        assert len(simulation.answers[0].tokens) == stream + 1
        steps = simulation.scheduler.stats().steps - start
        if tiny_at is None and simulation.answers[2].tokens:
            tiny_at = steps
        if long_at is None and simulation.answers[1].tokens:
            long_at = steps
        simulation.add(make_request(10 + turn, prompt=prompt_of(300, salt=10 + turn), max_tokens=1))
    assert tiny_at is not None and tiny_at <= 4
    assert long_at is not None and long_at <= 16 * 4 / 3 + 3
    simulation.run()
    simulation.check_answers()


def preempt(simulation: Simulation, request_id: int) -> None:
    """As if pages had run out, with this sequence last in order; it must have some to lose."""
    scheduler = simulation.scheduler
    sequence = scheduler._roster.live[request_id]
    while sequence.state not in (State.PREFILLING, State.RUNNING):
        simulation.step()
    scheduler._exits.preempt(sequence)
    scheduler.check()


def resumable(request_id: int, **sampling: object) -> Request:
    return make_request(
        request_id, prompt=prompt_of(37, salt=request_id), max_tokens=70, logprobs=1, **sampling
    )


@pytest.mark.parametrize(
    ("num_cohorts", "max_in_flight", "max_drafts"),
    [(1, 1, 3), (1, 2, 0), (1, 3, 2), (2, 1, 0), (2, 3, 4), (4, 5, 1)],
)
@pytest.mark.parametrize("outputs", [0, 1, 50])
@pytest.mark.parametrize("times", [1, 2])
def test_g07_a_resumed_request_loses_nothing(
    outputs: int, times: int, num_cohorts: int, max_in_flight: int, max_drafts: int
) -> None:
    simulation = Simulation(
        max_in_flight=max_in_flight,
        num_cohorts=num_cohorts,
        max_drafts=max_drafts,
        prefill_tokens=16,
    )
    simulation.add(
        resumable(1, presence_penalty=1.0, min_tokens=60, stop_token_ids=[]),
        resumable(2, prompt_logprobs=1),
    )
    for turn in range(times):
        for request_id in (1, 2):
            while len(simulation.answers[request_id].tokens) < outputs + turn:
                simulation.step()
            preempt(simulation, request_id)
    simulation.run()
    simulation.check_answers()
    stats = simulation.scheduler.stats()
    assert stats.preemptions == 2 * times
    assert (stats.prompt_tokens, stats.output_tokens) == (74, 140)
    resumed = [a for plan in simulation.plans for a in plan.admits if a.request == 1]
    for admit in resumed[1:]:
        assert admit.end == 37 + 70 and admit.min_end == 37 + 60
        assert admit.prompt_ids == simulation.requests[1].prompt_ids
        assert admit.output_ids == simulation.answers[1].tokens[: len(admit.output_ids)]
    simulation.check_drafts()
    simulation.check_idle()


def test_g07_prompt_logprobs_of_an_interrupted_prefill_are_gathered_anew() -> None:
    simulation = Simulation(max_in_flight=2, prefill_tokens=16)
    simulation.add(resumable(1, prompt_logprobs=1))
    for chunks in (1, 2):
        for _ in range(chunks):
            assert simulation.plan() is not None
        preempt(simulation, 1)
        assert simulation.answers[1].outputs == 0
        while simulation.receive():
            pass
    simulation.run()
    simulation.check_answers()
    simulation.check_idle()


def test_g07_tokens_in_flight_at_preemption_are_delivered() -> None:
    simulation = Simulation(max_in_flight=3)
    simulation.add(resumable(1))
    for _ in range(10):
        simulation.step()
    while simulation.plan() is not None:
        pass
    known = len(simulation.answers[1].tokens)
    preempt(simulation, 1)
    for arrived in (1, 2, 3):
        simulation.receive()
        assert len(simulation.answers[1].tokens) == known + arrived
    plan = simulation.plan()
    assert plan is not None
    (admit,) = plan.admits
    assert admit.cached == (37 + known + 3 - 1) // 16 * 16
    simulation.run()
    simulation.check_answers()


def test_a_preempted_request_whose_results_end_it_does_not_wait_again() -> None:
    simulation = Simulation(max_in_flight=3)
    simulation.add(make_request(1, prompt=prompt_of(5), max_tokens=3))
    while simulation.plan() is not None:
        pass
    preempt(simulation, 1)
    simulation.run()
    simulation.check_answers()
    assert sum(len(plan.admits) for plan in simulation.plans) == 1
    simulation.check_idle()


@pytest.mark.parametrize(("num_cohorts", "max_drafts"), [(1, 0), (1, 3), (2, 4), (3, 0)])
def test_the_oldest_always_progresses(num_cohorts: int, max_drafts: int) -> None:
    """Whoever is first in order gets a token in every turn of its cohort, whatever the others
    lose."""
    simulation = Simulation(
        num_pages=12,
        max_context=160,
        max_in_flight=1,
        num_cohorts=num_cohorts,
        max_drafts=max_drafts,
        prefill_tokens=64,
    )
    requests = [make_request(i, prompt=prompt_of(20, salt=i), max_tokens=100) for i in range(6)]
    simulation.add(*requests)
    simulation.step()
    while simulation.answers[0].end is None:
        known = len(simulation.answers[0].tokens)
        for _ in range(num_cohorts):
            simulation.step()
        assert len(simulation.answers[0].tokens) > known
    simulation.run()
    simulation.check_answers()
    assert simulation.scheduler.stats().preemptions > 0


@pytest.mark.parametrize(
    ("num_cohorts", "max_in_flight", "max_drafts"),
    [(1, 1, 0), (1, 2, 3), (1, 3, 0), (2, 3, 2), (4, 5, 0), (4, 6, 4)],
)
@pytest.mark.parametrize("where", ["queued", "prefilling", "decoding", "preempted"])
def test_d07_an_abort_frees_everything_soon(
    where: str, num_cohorts: int, max_in_flight: int, max_drafts: int
) -> None:
    simulation = Simulation(
        max_running=2,
        max_context=4096,
        num_pages=600,
        prefill_tokens=16,
        max_in_flight=max_in_flight,
        num_cohorts=num_cohorts,
        max_drafts=max_drafts,
    )
    if where == "queued":
        simulation.add(*[make_request(i, prompt=prompt_of(5, salt=i)) for i in (7, 8)])
        simulation.step()
    # Two choices of one call.
    choices = [make_request(i, prompt=prompt_of(100), max_tokens=4000, seed=i) for i in (1, 2)]
    simulation.add(*choices)
    steps = {"queued": 1, "prefilling": 3, "decoding": 30, "preempted": 30}[where]
    for _ in range(steps):
        simulation.step()
    if where == "preempted":
        preempt(simulation, 1)
    simulation.abort(1, 2)
    simulation.abort(1, 2)
    assert [simulation.finish_of(i) for i in (1, 2)] == [FinishReason.ABORT] * 2
    if where == "queued":
        simulation.run()
    else:
        for _ in range(max_in_flight):
            simulation.step()
    assert not simulation.scheduler.has_work
    assert simulation.scheduler.stats().aborts == 2
    simulation.check_answers()
    simulation.check_idle()


def test_d07_no_abort_is_counted_for_who_ended() -> None:
    simulation = Simulation()
    simulation.add(make_request(1, prompt=[1], max_tokens=2))
    simulation.run()
    simulation.abort(1)
    assert simulation.scheduler.stats().aborts == 0
    assert simulation.finish_of(1) is FinishReason.LENGTH
