"""What a step takes, estimated from measured ones."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import msgspec

from draftmark.core.start import CostPoint


class CostTable:
    """Estimated time of a step from measured ones.

    The time of a mixed step is that of its verify rows plus that of its prefill tokens: it is
    exact for an executor that runs them one after the other and an upper bound for one that fuses
    them. Between measured shapes of one kind time is linear in the count, and in the context;
    beyond the last one it goes on along the last line. `CostPoint.context_tokens` is each row's.
    More drafts never take less: what was measured so is noise.
    """

    def __init__(self, points: Iterable[CostPoint]) -> None:
        known = _rising(points)
        self._verify = {
            drafts: _Curve(
                [(p.verify_rows, p) for p in known if not p.prefill_tokens and p.drafts == drafts]
            )
            for drafts in sorted({point.drafts for point in known} | {0})
        }
        self._prefill = _Curve([(p.prefill_tokens, p) for p in known if p.verify_rows == 0])

    @property
    def is_empty(self) -> bool:
        """Nothing is known of prefill: no limit can be kept."""
        return self._prefill.is_empty

    def knows(self, drafts: int) -> bool:
        """Whether a step with so many drafts a row was measured."""
        curve = self._verify.get(drafts)
        return curve is not None and not curve.is_empty

    def ms(self, *, verify: tuple[int, int], prefill: tuple[int, int], drafts: int = 0) -> float:
        """Of a step with so many (verify rows, tokens of context each) and so many (prefill
        tokens, tokens of context before them). Each verify row runs and makes `drafts`: where that
        was not measured, as without."""
        curve = self._verify[drafts if self.knows(drafts) else 0]
        return curve.at(*verify) + self._prefill.at(*prefill)


def _rising(points: Iterable[CostPoint]) -> list[CostPoint]:
    """With the times of each shape rising with its drafts."""
    most: dict[tuple[int, int, int], float] = {}
    found = []
    for point in sorted(points, key=lambda point: point.drafts):
        shape = (point.verify_rows, point.prefill_tokens, point.context_tokens)
        most[shape] = max(most.get(shape, 0.0), point.ms)
        found.append(msgspec.structs.replace(point, ms=most[shape]))
    return found


class _Curve:
    """ms over a count, for each context measured; through 0 at count 0."""

    def __init__(self, points: list[tuple[int, CostPoint]]) -> None:
        by_context: dict[int, dict[int, float]] = {}
        for count, point in points:
            if count > 0:
                by_context.setdefault(point.context_tokens, {})[count] = point.ms
        self._contexts = sorted(by_context)
        self._lines = [sorted(by_context[context].items()) for context in self._contexts]

    @property
    def is_empty(self) -> bool:
        return not self._contexts

    def at(self, count: int, context: int) -> float:
        if count == 0 or self.is_empty:
            return 0.0
        times = [_interpolate(line, count) for line in self._lines]
        if len(times) == 1:
            return times[0]
        return max(0.0, _interpolate(list(zip(self._contexts, times, strict=True)), context))


def _interpolate(line: Sequence[tuple[int, float]], x: int) -> float:
    """Through the measured points of `line`; below the first it is the first's, beyond the last
    along the last two."""
    if x <= line[0][0]:
        return line[0][1]
    if len(line) == 1:
        return line[0][1] * x / line[0][0]
    right = min(max(bisect_left(line, (x, float("-inf"))), 1), len(line) - 1)
    (x0, y0), (x1, y1) = line[right - 1], line[right]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
