"""When the requests of an open loop start: seconds after the start of the run, ascending.

Every draw is seeded by the profile and by nothing of the process, so that two servers see the same
arrivals. Random gaps are rescaled to their exact mean: a draw that happens to be fast would
otherwise measure the draw, not the server.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftmark.bench.profile import Mode, Profile
from draftmark.core.errors import ConfigError


def arrival_times(profile: Profile) -> list[float] | None:
    """Of all requests of the profile; None in a closed loop. Traces bring their own times."""
    n, rate = profile.n_requests, profile.rate
    match profile.mode:
        case Mode.CLOSED:
            return None
        case Mode.POISSON:
            return gamma_times(n, rate=_rate_of(profile), burstiness=1.0, seed=profile.seed)
        case Mode.GAMMA:
            burstiness = profile.burstiness
            return gamma_times(n, rate=_rate_of(profile), burstiness=burstiness, seed=profile.seed)
        case Mode.BURST:
            return burst_times(n, size=profile.concurrency, rate=rate)
        case Mode.TRACE:
            raise ConfigError(f"the profile {profile.name} takes its times from a trace")


def _rate_of(profile: Profile) -> float:
    if profile.rate is None:
        raise ConfigError(f"the profile {profile.name} is {profile.mode} and gives no rate")
    return profile.rate


def gamma_times(n: int, *, rate: float, burstiness: float, seed: int) -> list[float]:
    """`n` arrivals of `rate` a second, gaps from a gamma distribution of shape `burstiness`: 1 is
    Poisson, below comes in bursts, above is more even. The first comes at 0, the last at exactly
    (n - 1) / rate."""
    if rate <= 0:
        raise ConfigError(f"a rate is above 0, not {rate}", param="rate")
    if burstiness <= 0:
        raise ConfigError(f"burstiness is above 0, not {burstiness}", param="burstiness")
    if n < 2:
        return [0.0] * n
    gaps = np.random.Generator(np.random.PCG64(seed)).gamma(burstiness, size=n - 1)
    times = np.concatenate(([0.0], np.cumsum(gaps)))
    return [float(time) for time in times / times[-1] * ((n - 1) / rate)]


def burst_times(n: int, *, size: int, rate: float | None) -> list[float]:
    """Groups of `size` at once, of `rate` requests a second over all; all at once without one."""
    if rate is None:
        return [0.0] * n
    if rate <= 0:
        raise ConfigError(f"a rate is above 0, not {rate}", param="rate")
    return [(i // size) * size / rate for i in range(n)]


def trace_times(
    stamps_s: Sequence[float], *, speed: float = 1.0, spread_ticks: bool = False, seed: int = 0
) -> list[float]:
    """A trace's own times from its first request on, `speed` times as fast.

    Traces may be recorded in ticks (Mooncake: 3 s, ten requests on each). `spread_ticks` puts
    those of one tick anywhere inside it, in their order; without it the replay is bursty.
    """
    if speed <= 0:
        raise ConfigError(f"a speed is above 0, not {speed}", param="speed")
    stamps = np.asarray(stamps_s, dtype=np.float64)
    if np.any(np.diff(stamps) < 0):
        row = int(np.argmax(np.diff(stamps) < 0)) + 2
        raise ConfigError(f"request {row} of the trace is earlier than the one before it")
    if spread_ticks and len(stamps):
        stamps = _spread(stamps, seed=seed)
    return [float(time) for time in (stamps - stamps[:1]) / speed]


def _spread(stamps: NDArray[np.float64], *, seed: int) -> NDArray[np.float64]:
    """Each stamp moved by less than a tick: the least distance of two different stamps."""
    distances = np.diff(np.unique(stamps))
    if not len(distances):
        raise ConfigError("all requests of the trace have one time: there is no tick to spread")
    rng = np.random.Generator(np.random.PCG64(seed))
    return np.sort(stamps + rng.uniform(0.0, distances.min(), size=len(stamps)))
