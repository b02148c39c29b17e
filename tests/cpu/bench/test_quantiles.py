"""Quantiles against numpy's linear method, failures as infinity, and silence where n is small."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.bench.quantiles import distribution, quantile
from draftmark.bench.result import Basis

FEWEST = {50: 20, 90: 100, 95: 200, 99: 1000}


@given(
    st.lists(st.floats(0, 1e9), min_size=20, max_size=120),
    st.sampled_from([50, 90]),
)
def test_quantiles_are_linear(values: list[float], percent: int):
    found = quantile(sorted(values), percent)
    if len(values) < FEWEST[percent]:
        assert found is None
    else:
        assert found == pytest.approx(float(np.percentile(values, percent, method="linear")))


@pytest.mark.parametrize("percent", FEWEST)
def test_too_few_values_have_no_quantile(percent: int):
    fewest = FEWEST[percent]
    assert quantile([1.0] * (fewest - 1), percent) is None
    assert quantile([1.0] * fewest, percent) == 1.0


def test_failures_are_infinitely_slow():
    values = [float(value) for value in range(95)]
    found = distribution(values, unit="ms", basis=Basis.REQUESTS, num_failed=15)
    assert (found.n, found.max, found.p50) == (95, 94.0, 47.0)
    assert found.p90 is None
    slow = found.with_failures
    assert slow is not None
    assert (slow.n, slow.p50, slow.p90, slow.p95) == (110, 54.5, "inf", None)


def test_the_last_success_is_not_touched_by_the_failure_after_it():
    # 101 values: p50 is exactly the 51st, p90 exactly the 91st; only the 92nd and later failed.
    ordered = [float(value) for value in range(91)] + [math.inf] * 10
    assert quantile(ordered, 50) == 50.0
    assert quantile(ordered, 90) == 90.0


def test_nothing_is_not_zero():
    empty = distribution([], unit="ms", basis=Basis.REQUESTS, num_failed=0)
    assert (empty.n, empty.mean, empty.p50, empty.max) == (0, None, None, None)
    assert empty.with_failures is not None and empty.with_failures.n == 0


def test_gaps_are_no_requests():
    gaps = distribution([1.0] * 30, unit="ms", basis=Basis.REQUESTS, num_failed=None)
    assert gaps.with_failures is None
