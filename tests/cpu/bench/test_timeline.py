"""Requests in flight, tokens over time, and the steady part of a run."""

import numpy as np
import pytest

from draftmark.bench.request import Failure
from draftmark.bench.timeline import (
    in_flight_at,
    mean_in_flight,
    steady,
    steady_span,
    steps_in_flight,
    token_times,
    tokens_by,
    tpot_within,
)
from tests.fakes.bench_run import MS, closed_loop, failed, record


def test_in_flight_steps_up_and_down():
    runs = [record(0), record(1, send_ms=50)]
    times, levels = steps_in_flight(runs)
    assert times.tolist() == [0, 50 * MS, 170 * MS, 220 * MS]
    assert levels.tolist() == [1, 2, 1, 0]
    moments = np.array([-1.0, 0, 60, 170, 230]) * MS
    assert in_flight_at(runs, moments).tolist() == [0, 1, 2, 1, 0]
    assert mean_in_flight(runs, 0, 220 * MS) == pytest.approx(340 / 220)


def test_nothing_sent_is_nothing_in_flight():
    never = [failed(0, Failure.REFUSED, at_ms=None)]
    assert in_flight_at(never, np.array([0.0, 1e9])).tolist() == [0, 0]
    assert steady_span(never, 1) is None
    assert mean_in_flight(never, 5, 5) is None


def test_refused_at_once_is_never_in_flight():
    _, levels = steps_in_flight([record(0), failed(1, Failure.REFUSED, at_ms=50)])
    assert levels.tolist() == [1, 0]


def test_tokens_come_when_their_events_do():
    one = record(gaps_ms=[10.0, 20.0], event_tokens=[2, 1, 3])
    times, tokens = token_times(one)
    assert times.tolist() == [100 * MS, 110 * MS, 130 * MS]
    assert tokens.tolist() == [2, 3, 6]
    assert tokens_by([one], np.array([99, 100, 105, 120, 999.0]) * MS).tolist() == [
        0, 2, 2.5, 4.5, 6,
    ]  # fmt: skip


def test_tokens_of_unknown_events_are_spread():
    _, tokens = token_times(record(gaps_ms=[10.0] * 3, n_out=10))
    assert tokens.tolist() == [1, 4, 7, 10]
    _, whole = token_times(record(gaps_ms=[], n_out=10))
    assert whole.tolist() == [10]


def test_time_per_token_of_a_part():
    """Slow at first: 20 ms a token, then 10. A first event of three tokens is no decoding."""
    one = record(gaps_ms=[20.0, 20.0, 10.0, 10.0], event_tokens=[3, 1, 1, 1, 1])
    assert tpot_within([one], 0, 1e12) == 15 * MS
    assert tpot_within([one], 0, 140 * MS) == 20 * MS
    assert tpot_within([one], 145 * MS, 155 * MS) == 10 * MS
    assert tpot_within([one], 0, 100 * MS) is None
    assert tpot_within([record(gaps_ms=[])], 0, 1e12) is None


def test_failed_requests_bring_no_tokens():
    cut = record(failure=Failure.TRUNCATED_STREAM)
    assert tokens_by([cut], np.array([1e12])).tolist() == [0]


def test_a_hand_over_does_not_end_the_steady_span():
    span = steady_span(closed_loop(concurrency=4, waves=10), 4)
    assert span == pytest.approx((0.03 * MS, (9 * 171 + 170) * MS))


def test_a_pause_ends_it():
    runs = closed_loop(concurrency=4, waves=3)
    later = [
        record(100 + lane, send_ms=1000 + wave * 171)
        for wave in range(5)
        for lane in range(4)
    ]  # fmt: skip
    assert steady_span([*runs, *later], 4) == (1000 * MS, (1000 + 4 * 171 + 170) * MS)


def test_ramp_and_tail_are_left_out():
    staircase = [record(i, send_ms=i * 20) for i in range(4)]
    found = steady(staircase, 4, 230.0 * MS)
    assert (found.start_s, found.end_s) == (0.06, 0.17)
    assert found.mean_in_flight == 4
    assert found.flagged is None
    short = steady(staircase, 4, 1000.0 * MS)
    assert short.share_of_wall == pytest.approx(0.11)
    assert short.flagged is not None and "11%" in short.flagged


def test_a_run_that_never_filled_says_so():
    never = steady([record()], 4, 170.0 * MS)
    assert never.start_s is None
    assert never.flagged == "never 95% of 4 in flight"
