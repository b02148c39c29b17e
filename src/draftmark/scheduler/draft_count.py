"""How many drafts a turn makes for each of its rows: as many as emit most tokens in its time.

A window with k drafts is expected to emit 1 + p1 + p1 p2 + ... tokens and takes the time of a step
in which every row runs and makes k; the k with most tokens a second wins, 0 included. Rates are
learnt from what was accepted (`acceptance`), times come from the cost table of the start,
corrected by what steps really take.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence as Several
from dataclasses import dataclass
from statistics import median

from draftmark.scheduler.acceptance import Acceptance
from draftmark.scheduler.costs import CostTable
from draftmark.scheduler.queue import Sequence

# A count is changed only for more than this share of tokens a second, and not before so many turns:
# a change from 0 costs the head what it knew of the rows.
_GAIN = 0.02
_TURNS_BETWEEN_LOOKS = 8
# Rates of positions that are not drafted are not learnt, nor what a step without drafts takes where
# there always are some: now and then as many as possible are drafted, or none, for so many turns,
# and windows enough to tell. The waits between that double while it changes nothing.
_PROBE_TURNS, _PROBE_WINDOWS = 12, 32
_FIRST_PROBE, _LAST_PROBE = 512, 8192
# Steps of one count whose times are remembered; the median is not moved by a busy neighbour. Fewer
# than these, or none among so many of all counts, say nothing.
_TIMES, _FEWEST_TIMES, _LATELY = 15, 8, 2 * _LAST_PROBE


@dataclass(slots=True)
class _Choice:
    """Of one cohort. Turns are its own; `made` is what its last one drafted, `drafts` what it
    drafts but for a probe, which drafts `probe`."""

    drafts: int
    made: int
    probe: int = 0
    rows: int = 0
    turn: int = 0
    look_at: int = 0
    probe_at: int = _FIRST_PROBE
    probe_wait: int = _FIRST_PROBE
    probe_end: int = 0


class DraftCount:
    """`adapts` chooses among 0 and all up to `max_drafts`; else it is always `max_drafts`.
    `num_stages`: what a step took is told by the last stage only, so that times are learnt only
    where there is no other. `turns` counts turns by drafts made, `num_gaps` rows whose head began
    anew after turns without."""

    def __init__(
        self,
        max_drafts: int,
        *,
        adapts: bool,
        costs: CostTable,
        acceptance: Acceptance,
        num_cohorts: int,
        num_stages: int,
    ) -> None:
        self.turns = [0] * (max_drafts + 1)
        self.num_gaps = 0
        self.max_drafts = max_drafts
        self._adapts = adapts and max_drafts > 0
        self._costs = costs
        self._acceptance = acceptance
        self._cohorts = [_Choice(max_drafts, max_drafts) for _ in range(num_cohorts)]
        self._learns_times = num_stages == 1
        self._times: list[deque[float]] = [deque(maxlen=_TIMES) for _ in range(max_drafts + 1)]
        self._timed_at = [0] * (max_drafts + 1)
        self._num_timed = 0

    def choose(self, cohort: int, rows: Several[Sequence], *, context: int) -> int:
        """Drafts for each of the `rows` of a turn of `cohort`, which have about `context` tokens
        each."""
        choice = self._cohorts[cohort]
        if not rows:
            return choice.drafts
        return self._next(choice, rows, context) if self._adapts else self._asked_for(rows)

    def took(self, cohort: int, drafts: int, *, rows: int) -> None:
        """A turn of `cohort` is planned, with so many of its rows: the others sit it out."""
        choice = self._cohorts[cohort]
        choice.turn += 1
        if drafts and not choice.made:
            self.num_gaps += rows
        choice.made = drafts
        self.turns[drafts] += 1

    def observe(self, drafts: int, *, rows: int, context: int, ms: float) -> None:
        """A step of `rows` verify rows alone, each with `drafts` and making as many, took `ms`."""
        if not self._adapts or not self._learns_times:
            return
        expected = self._ms(drafts, rows, context)
        if expected and ms:
            self._num_timed += 1
            self._timed_at[drafts] = self._num_timed
            self._times[drafts].append(ms / expected)

    def break_even(self, rows: int, *, context: int) -> list[float]:
        """For each number of drafts from 1, how many tokens a window must emit to be no slower
        than none would be. Empty where nothing was measured."""
        plain = self._estimate(0, rows, context)
        counts = range(1, self.max_drafts + 1)
        if not plain or not all(self._costs.knows(drafts) for drafts in counts):
            return []
        return [self._estimate(drafts, rows, context) / plain for drafts in counts]

    def _next(self, choice: _Choice, rows: Several[Sequence], context: int) -> int:
        most = self._asked_for(rows)
        if choice.turn < choice.probe_end:
            return min(choice.probe, most)
        if choice.turn >= choice.look_at or len(rows) != choice.rows:
            choice.rows, choice.look_at = len(rows), choice.turn + _TURNS_BETWEEN_LOOKS
            best = self._best(min(choice.drafts, most), rows, most, context)
            if best != choice.drafts:
                choice.drafts, choice.probe_wait = best, _FIRST_PROBE
                choice.probe_at = choice.turn + _FIRST_PROBE
        if choice.turn >= choice.probe_at:
            choice.probe = self._to_probe(choice, most)
            turns = _PROBE_TURNS
            if choice.probe > choice.drafts:
                self._acceptance.doubt(choice.drafts)
                turns = max(turns, -(-_PROBE_WINDOWS // len(rows)))
            choice.probe_end = choice.turn + turns
            choice.probe_wait = min(2 * choice.probe_wait, _LAST_PROBE)
            choice.probe_at = choice.probe_end + choice.probe_wait
        return min(choice.drafts, most)

    def _to_probe(self, choice: _Choice, most: int) -> int:
        """None and the most in turn, as far as either is to be learnt anything from."""
        if not self._learns_times or choice.drafts == 0:
            return most
        if choice.drafts >= most:
            return 0
        return most if choice.probe == 0 else 0

    def _best(self, now: int, rows: Several[Sequence], most: int, context: int) -> int:
        limits = Counter(sequence.max_drafts for sequence in rows)

        def speed(drafts: int) -> float:
            tokens = sum(
                count * self._acceptance.expected(min(drafts, limit))
                for limit, count in limits.items()
            )
            return tokens / self._estimate(drafts, len(rows), context)

        if not self._estimate(0, len(rows), context):
            return most  # nothing was measured
        best = max(range(most + 1), key=speed)
        return best if speed(best) > speed(now) * (1 + _GAIN) else now

    def _asked_for(self, rows: Several[Sequence]) -> int:
        """The most that any of them may have."""
        return min(self.max_drafts, max(sequence.max_drafts for sequence in rows))

    def _estimate(self, drafts: int, rows: int, context: int) -> float:
        """Milliseconds, as far as known with what steps really took. What never ran lately is as
        far off the table as the nearest that did."""
        ran = [
            count
            for count, times in enumerate(self._times)
            if len(times) >= _FEWEST_TIMES and self._num_timed - self._timed_at[count] < _LATELY
        ]
        factor = 1.0
        if ran:
            factor = median(self._times[min(ran, key=lambda count: abs(count - drafts))])
        return self._ms(drafts, rows, context) * factor

    def _ms(self, drafts: int, rows: int, context: int) -> float:
        return self._costs.ms(verify=(rows, context), prefill=(0, 0), drafts=drafts)
