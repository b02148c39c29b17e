"""Cohorts: the running sequences in M parts that take turns, step n being that of cohort n mod M.

While one cohort is on the last stage of a pipeline, another can be on the first. The device applies
what step n gave (token, length, end) at the head of the first step from n + M on, so a verify row
may be in step n only if the last step with its sequence is n - M or before. In the turns of one
cohort that holds by itself; it does not for a row that has just got its cohort, by its last chunk
or by a move. Such a row has `horizon` 0, so that the planner looks closer.
"""

from __future__ import annotations

from bisect import insort

from draftmark.scheduler import policy
from draftmark.scheduler.queue import Sequence, by_order

# A row that moves may miss a turn: it moves at most once in so many rounds (turns of all cohorts).
ROUNDS_BETWEEN_MOVES = 32


class Cohort:
    """Its running sequences in order, and the tokens of KV that they have at most (by `bound`).

    Who raises the `bound` of a row adds to `tokens` as well.
    """

    __slots__ = ("rows", "tokens")

    def __init__(self) -> None:
        self.rows: list[Sequence] = []
        self.tokens = 0

    @property
    def load(self) -> tuple[int, int]:
        """(rows, tokens of KV)"""
        return len(self.rows), self.tokens

    @property
    def context(self) -> int:
        """Tokens of KV that a row has, in the mean."""
        return self.tokens // max(len(self.rows), 1)

    def add(self, sequence: Sequence) -> None:
        insort(self.rows, sequence, key=by_order)
        self.tokens += sequence.bound

    def remove(self, sequence: Sequence) -> None:
        self.rows.remove(sequence)
        self.tokens -= sequence.bound


class Cohorts:
    """`all` of them, in the order of their turns. `may_be_uneven` is set when rows came or went."""

    def __init__(self, num_cohorts: int) -> None:
        self.all = [Cohort() for _ in range(num_cohorts)]
        self.may_be_uneven = False

    @property
    def num_rows(self) -> int:
        return sum(len(cohort.rows) for cohort in self.all)

    @property
    def fullest(self) -> Cohort:
        return max(self.all, key=_load)

    def add(self, sequence: Sequence, *, step: int) -> None:
        """A sequence whose last chunk is in `step` joins the cohort with the least load; of equal
        ones that of `step`, whose next turn is the first in which it can have a verify row."""
        num = len(self.all)
        nearest = [(step + distance) % num for distance in range(num)]
        self._put(sequence, min(nearest, key=lambda index: self.all[index].load))

    def remove(self, sequence: Sequence) -> None:
        self.all[sequence.cohort].remove(sequence)
        self.may_be_uneven = True

    def rebalance(self, step: int) -> None:
        """Before `step` is planned: while the imbalance is more than `policy` bears, move a row
        from the fullest cohort to the emptiest one, of those that did not move lately."""
        cohorts = self.all
        latest = step - ROUNDS_BETWEEN_MOVES * len(cohorts)
        while policy.is_uneven([len(cohort.rows) for cohort in cohorts]):
            fullest, emptiest = self.fullest, min(cohorts, key=_load)
            movable = [sequence for sequence in fullest.rows if sequence.moved_at <= latest]
            if not movable:
                return
            num_moves = (len(fullest.rows) - len(emptiest.rows)) // 2
            tokens = (fullest.tokens - emptiest.tokens) // (2 * num_moves)
            sequence = min(movable, key=lambda sequence: abs(sequence.bound - tokens))
            self._move(sequence, cohorts.index(emptiest), step=step)
        self.may_be_uneven = False

    def _move(self, sequence: Sequence, index: int, *, step: int) -> None:
        self.all[sequence.cohort].remove(sequence)
        sequence.moved_at = step
        self._put(sequence, index)

    def _put(self, sequence: Sequence, index: int) -> None:
        sequence.cohort = index
        sequence.horizon = 0
        self.all[index].add(sequence)
        self.may_be_uneven = True

    def check(self) -> None:
        """Raise `AssertionError` when a row is in another cohort than it says, or a load is wrong.
        That the rows are in order is checked with the other lists."""
        for index, cohort in enumerate(self.all):
            assert all(sequence.cohort == index for sequence in cohort.rows)
            assert cohort.tokens == sum(sequence.bound for sequence in cohort.rows)


def _load(cohort: Cohort) -> tuple[int, int]:
    return cohort.load
