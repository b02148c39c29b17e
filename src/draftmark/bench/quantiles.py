"""Quantiles, linear between the two nearest values, and only where there are values enough.

Taken twice: over the requests that succeeded, and with each failure as infinitely slow, so that a
server cannot improve its p99 by dropping what would have been late.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from draftmark.bench.result import Basis, Distribution, Quantile, Quantiles


def quantile(ordered: Sequence[float], percent: int) -> float | None:
    """Of values in ascending order, infinite ones last. None when n < 10 / (1 - q): fewer than ten
    values beyond a quantile say little of where it is."""
    if len(ordered) * (100 - percent) < 1000:
        return None
    # Whole numbers, so that a place that is exact stays exact: at it no neighbour may weigh in.
    below, rest = divmod((len(ordered) - 1) * percent, 100)
    if rest == 0 or math.isinf(ordered[below]):
        return ordered[below]
    return ordered[below] + (ordered[below + 1] - ordered[below]) * rest / 100


def distribution(
    values: Sequence[float], *, unit: str, basis: Basis, num_failed: int | None
) -> Distribution:
    """`num_failed` None: the values are no requests (gaps between events), and a failed request has
    no number of them."""
    ordered = sorted(values)
    return Distribution(
        unit=unit,
        basis=basis,
        n=len(ordered),
        mean=math.fsum(ordered) / len(ordered) if ordered else None,
        p50=quantile(ordered, 50),
        p90=quantile(ordered, 90),
        p95=quantile(ordered, 95),
        p99=quantile(ordered, 99),
        max=ordered[-1] if ordered else None,
        with_failures=None if num_failed is None else _with_failures(ordered, num_failed),
    )


def _with_failures(ordered: list[float], num_failed: int) -> Quantiles:
    every = [*ordered, *[math.inf] * num_failed]
    return Quantiles(
        n=len(every),
        p50=_written(quantile(every, 50)),
        p90=_written(quantile(every, 90)),
        p95=_written(quantile(every, 95)),
        p99=_written(quantile(every, 99)),
    )


def _written(value: float | None) -> Quantile:
    return "inf" if value is not None and math.isinf(value) else value
