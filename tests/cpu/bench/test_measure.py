"""The figures of a whole run, against arithmetic by hand."""

import pytest

from draftmark.bench.measure import count, count_tokens, is_good, measure, withhold
from draftmark.bench.metrics import FIGURES, GAP_METRICS, REQUEST_METRICS
from draftmark.bench.profile import Mode, Objectives
from draftmark.bench.request import CountSource, Failure
from draftmark.bench.result import Counters
from tests.fakes.bench_run import closed_loop, failed, profile, record

# Ten waves of 170 ms with 1 ms between; four lanes begin 10 us apart.
WALL_S = (9 * 171 + 170 + 0.03) / 1e3


def values(measured):
    return {name: figure.value for name, figure in measured.figures.items()}


def test_the_defined_figures_are_measured_and_no_others():
    found = measure([record()], profile(), delta=Counters())
    assert set(found.figures) == set(FIGURES)
    assert set(found.metrics) == {m.definition.name for m in (*REQUEST_METRICS, *GAP_METRICS)}
    for name, figure in found.figures.items():
        assert (figure.unit, figure.basis) == (FIGURES[name].unit, FIGURES[name].basis)


def test_a_closed_loop():
    runs = closed_loop(concurrency=4, waves=10)
    found = measure(runs, profile(), delta=Counters(verify_steps=140, accepted=140))
    assert found.wall_s == pytest.approx(WALL_S)
    got = values(found)
    assert got["out_tok_s"] == pytest.approx(40 * 8 / WALL_S)
    assert got["in_tok_s"] == pytest.approx(40 * 32 / WALL_S)
    assert got["req_s"] == pytest.approx(40 / WALL_S)
    assert got["ok_request_tok_s"] == pytest.approx(8 / 0.170)
    assert got["ok_share"] == 1
    assert (got["goodput_req_s"], got["attainment"]) == (None, None)
    # 4 lanes, 10 waves, from the last one to begin to the first one to end of the last wave.
    assert found.steady is not None
    assert found.steady.end_s - found.steady.start_s == pytest.approx(WALL_S - 0.00006)
    in_flight = found.steady.mean_in_flight
    assert in_flight == pytest.approx(4 * 1700 / 1709, abs=0.001)
    assert got["steady_out_tok_s"] == pytest.approx(40 * 8 / WALL_S, rel=0.01)
    assert got["steady_tpot_ms"] == pytest.approx(10.0)
    # By the whole lane, its prompts' time too: every stream is taken to step with the others.
    assert got["step_ms"] == pytest.approx(2e3 * in_flight / got["steady_out_tok_s"])
    assert got["tpot_step_ms"] == pytest.approx(20.0)
    assert found.metrics["tpot_ms"].p50 == pytest.approx(10.0)
    assert found.metrics["icl_ms"].n == 40 * 7


def test_steps_without_a_draft_are_steps_too():
    """280 tokens after the first ones: 70 windows of 3 tokens, and 70 steps of one that no server
    counts. An acceptance of 3 would make of 10 ms a token steps of 30 ms."""
    runs = closed_loop(concurrency=4, waves=10)
    found = measure(runs, profile(), delta=Counters(verify_steps=70, accepted=140))
    assert found.spec.accept == pytest.approx(3.0)
    assert values(found)["tpot_step_ms"] == pytest.approx(20.0)
    # More accepted drafts than tokens: whoever counted them counted something else.
    other = measure(runs, profile(), delta=Counters(verify_steps=70, accepted=280))
    assert values(other)["tpot_step_ms"] is None


def test_without_an_acceptance_there_is_no_step():
    runs = closed_loop(concurrency=4, waves=10)
    assert values(measure(runs, profile(), delta=Counters()))["step_ms"] is None
    drafts_nothing = measure(runs, profile(), delta=Counters(verify_steps=0, accepted=0))
    assert values(drafts_nothing)["tpot_step_ms"] == pytest.approx(10.0)


def test_an_open_loop_has_no_target_to_be_steady_at():
    found = measure([record()], profile(mode=Mode.POISSON, rate=1.0), delta=Counters())
    assert found.steady is None
    assert values(found)["steady_out_tok_s"] is None


def test_objectives():
    slo = Objectives(ttft_ms=150, tpot_ms=10)
    assert is_good(record(), slo)
    assert not is_good(record(ttft_ms=151), slo)
    assert not is_good(record(gaps_ms=[11.0] * 7), slo)
    assert not is_good(failed(0, Failure.HTTP_5XX, at_ms=0), slo)
    assert is_good(record(gaps_ms=[]), slo)
    runs = [record(0), record(1, ttft_ms=200), failed(2, Failure.HTTP_5XX, at_ms=0), record(3)]
    got = values(measure(runs, profile(slo=slo), delta=Counters()))
    assert got["attainment"] == 0.5
    assert got["goodput_req_s"] == pytest.approx(2 / 0.270)


def test_an_objective_that_was_not_measured_is_not_met() -> None:
    """An answer that came in one piece has no time to its first token."""
    whole = record(1, t_first=None, icl_us=[], events=0)
    assert is_good(whole, Objectives(ttft_ms=150)) is None
    assert is_good(whole, Objectives(tpot_ms=150)) is None
    assert is_good(whole, Objectives(e2e_ms=1)) is False
    slo = Objectives(ttft_ms=150)
    got = values(measure([record(0), whole], profile(slo=slo), delta=Counters()))
    assert (got["attainment"], got["goodput_req_s"]) == (None, None)


def test_failures_are_counted_by_their_class():
    runs = [record(0), *(failed(i, Failure.REFUSED, at_ms=0, collateral=i > 1) for i in (1, 2, 3))]
    found = count(runs, [])
    assert (found.sent, found.ok, found.failed, found.collateral) == (4, 1, 3, 2)
    assert found.by_class == {Failure.REFUSED: 3}


def test_failed_requests_are_in_no_latency_but_in_the_share():
    runs = [record(0), failed(1, Failure.READ_TIMEOUT, at_ms=0)]
    found = measure(runs, profile(), delta=Counters())
    assert found.metrics["ttft_ms"].n == 1
    assert found.metrics["ttft_ms"].with_failures.n == 2
    assert values(found)["ok_share"] == 0.5


def test_tokens_and_their_sources():
    same = count_tokens([record(0), record(1)])
    assert (same.input, same.output, same.cached) == (64, 16, 0)
    assert same.source is CountSource.USAGE
    mixed = count_tokens([record(0), record(1, n_out_source=CountSource.CHUNKS, n_cached=None)])
    assert mixed.source is None
    assert mixed.sources == {CountSource.USAGE: 1, CountSource.CHUNKS: 1}
    assert mixed.cached is None
    assert count_tokens([]).output is None


def test_a_server_that_answered_nothing_has_no_speed():
    runs = [failed(i, Failure.REFUSED, at_ms=0) for i in range(4)]
    found = measure(runs, profile(), delta=Counters())
    assert found.wall_s is None
    assert values(found)["out_tok_s"] is None
    assert values(found)["ok_share"] == 0


def test_nothing_timed_is_told_of_a_broken_run():
    runs = closed_loop(concurrency=4, waves=10)
    told = withhold(measure(runs, profile(), delta=Counters(verify_steps=1, accepted=1)))
    assert (told.metrics, told.figures, told.steady, told.wall_s) == ({}, {}, None, None)
    assert told.spec.accept is None
    assert told.counts.ok == 40
