"""Two servers on the same problems: the exact test of McNemar, and the score interval of the
difference of paired shares (Tango 1998).

Only problems that one of the two got right and the other wrong say anything.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import msgspec


class Paired(msgspec.Struct, frozen=True, kw_only=True):
    """`gained` are right here and wrong in the reference, `lost` the other way round. `difference`
    is the share here minus there, `low` and `high` its interval, `p` of "they are equally good"."""

    n: int
    gained: int
    lost: int
    difference: float
    low: float
    high: float
    level: float
    p: float

    def is_non_inferior(self, margin: float) -> bool:
        """Whether the share here is at worst `margin` below the reference's."""
        return self.low > -margin


def compare_paired(*, n: int, gained: int, lost: int, level: float = 0.95) -> Paired:
    """`n` problems in all."""
    assert n > 0 and gained >= 0 and lost >= 0 and gained + lost <= n
    low, high = score_interval(n=n, gained=gained, lost=lost, level=level)
    return Paired(
        n=n,
        gained=gained,
        lost=lost,
        difference=(gained - lost) / n,
        low=low,
        high=high,
        level=level,
        p=mcnemar_exact(gained, lost),
    )


def mcnemar_exact(gained: int, lost: int) -> float:
    """Two-sided: a fair coin's chance to part `gained + lost` at least this unevenly."""
    tosses = gained + lost
    tail: int = sum(math.comb(tosses, k) for k in range(min(gained, lost) + 1))
    return min(1.0, float(2 * tail / 2**tosses))


def score_interval(*, n: int, gained: int, lost: int, level: float = 0.95) -> tuple[float, float]:
    """All differences that the score test at 1 - `level` does not refuse."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    return (
        _where_score_is(z, n=n, gained=gained, lost=lost),
        _where_score_is(-z, n=n, gained=gained, lost=lost),
    )


def wilson_interval(right: int, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """Of one share: the score interval of a binomial."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    middle = (right + z * z / 2) / (n + z * z)
    half = z * math.sqrt(right * (n - right) / n + z * z / 4) / (n + z * z)
    return max(0.0, middle - half), min(1.0, middle + half)


def _where_score_is(wanted: float, *, n: int, gained: int, lost: int) -> float:
    """The difference whose score is `wanted`; the score falls as the difference grows."""
    low, high = -1.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _score(middle, n=n, gained=gained, lost=lost) > wanted:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _score(difference: float, *, n: int, gained: int, lost: int) -> float:
    """The observed difference against a supposed one, in standard errors under that supposition.

    The share that is lost comes from the likelihood, with the difference held fixed: the root of
    a x^2 + b x + c.
    """
    a = 2 * n
    b = -gained - lost + (2 * n - gained + lost) * difference
    c = -lost * difference * (1 - difference)
    lost_share = (math.sqrt(max(b * b - 4 * a * c, 0.0)) - b) / (2 * a)
    variance = n * (2 * lost_share + difference * (1 - difference))
    distance = gained - lost - n * difference
    if variance <= 0:
        return math.copysign(math.inf, distance) if distance else 0.0
    return distance / math.sqrt(variance)
