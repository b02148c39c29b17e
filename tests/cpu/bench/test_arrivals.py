"""Arrival times: seeded, of the exact mean, and a trace's ticks spread inside themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from draftmark.bench.arrivals import arrival_times, burst_times, gamma_times, trace_times
from draftmark.bench.profile import Mode, Profile
from draftmark.core.errors import ConfigError


def gap_variation(times: list[float]) -> float:
    """Standard deviation of the gaps over their mean: 1 / sqrt(shape) for a gamma."""
    gaps = np.diff(times)
    return float(gaps.std() / gaps.mean())


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_their_exact_mean_and_their_shape(burstiness: float) -> None:
    times = gamma_times(4001, rate=20.0, burstiness=burstiness, seed=3)
    assert times[0] == 0.0 and times == sorted(times)
    assert times[-1] == pytest.approx(4000 / 20.0)
    assert gap_variation(times) == pytest.approx(burstiness**-0.5, rel=0.1)


def test_the_seed_alone_decides_in_any_process() -> None:
    code = (
        "from draftmark.bench.arrivals import gamma_times;"
        "print(gamma_times(5, rate=2.0, burstiness=1.0, seed=7))"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    mine = gamma_times(5, rate=2.0, burstiness=1.0, seed=7)
    assert other.stdout.strip() == str(mine)
    assert mine != gamma_times(5, rate=2.0, burstiness=1.0, seed=8)


def test_bursts() -> None:
    assert burst_times(3, size=2, rate=None) == [0.0, 0.0, 0.0]
    assert burst_times(5, size=2, rate=4.0) == [0.0, 0.0, 0.5, 0.5, 1.0]


@pytest.mark.parametrize("n", [0, 1])
def test_nothing_to_space(n: int) -> None:
    assert gamma_times(n, rate=1.0, burstiness=1.0, seed=1) == [0.0] * n
    assert trace_times([5.0] * n) == [0.0] * n


def test_a_trace_starts_at_zero_and_may_be_faster() -> None:
    assert trace_times([10.0, 11.0, 14.0], speed=2.0) == [0.0, 0.5, 2.0]


def test_ticks_are_spread_inside_themselves() -> None:
    stamps = [3.0 * (i // 10) for i in range(200)]
    times = trace_times(stamps, spread_ticks=True, seed=1)
    assert times == sorted(times) and times[0] == 0.0
    assert len(set(times)) == 200
    absolute = np.asarray(times) - times[0]
    assert np.all(np.abs(absolute - np.asarray(stamps)) < 3.0)
    assert times == trace_times(stamps, spread_ticks=True, seed=1)


def test_mooncake_has_few_distinct_times(shared_data: Path) -> None:
    lines = (shared_data / "traces/mooncake_conversation.jsonl").read_text().splitlines()
    stamps = [float(line.split('"timestamp": ')[1].split(",")[0]) / 1000 for line in lines]
    assert len(set(trace_times(stamps))) == 1180
    assert len(set(trace_times(stamps, spread_ticks=True, seed=1))) > 12_000


@pytest.mark.parametrize(
    ("mode", "word"), [(Mode.POISSON, "no rate"), (Mode.GAMMA, "no rate"), (Mode.TRACE, "a trace")]
)
def test_what_is_missing_is_said(mode: Mode, word: str) -> None:
    profile = Profile(name="x", mode=mode, n_requests=2, isl=1, osl=1)
    with pytest.raises(ConfigError, match=word):
        arrival_times(profile)


def test_profiles() -> None:
    closed = Profile(name="x", n_requests=2, isl=1, osl=1)
    assert arrival_times(closed) is None
    poisson = Profile(name="x", mode=Mode.POISSON, rate=2.0, n_requests=3, isl=1, osl=1)
    assert arrival_times(poisson) == gamma_times(3, rate=2.0, burstiness=1.0, seed=1)
    burst = Profile(name="x", mode=Mode.BURST, concurrency=2, n_requests=3, isl=1, osl=1)
    assert arrival_times(burst) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "call",
    [
        lambda: gamma_times(2, rate=0.0, burstiness=1.0, seed=1),
        lambda: gamma_times(2, rate=1.0, burstiness=0.0, seed=1),
        lambda: burst_times(2, size=1, rate=-1.0),
        lambda: trace_times([1.0], speed=0.0),
        lambda: trace_times([2.0, 1.0]),
        lambda: trace_times([2.0, 2.0], spread_ticks=True),
    ],
)
def test_nonsense_is_refused(call: object) -> None:
    assert callable(call)
    with pytest.raises(ConfigError):
        call()
