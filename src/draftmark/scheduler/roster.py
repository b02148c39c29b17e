"""The lists that sequences move through, by state.

Running sequences are listed by cohort (`cohorts`): a turn touches those of its cohort only.
"""

from __future__ import annotations

from bisect import insort

from draftmark.scheduler.cohorts import Cohorts
from draftmark.scheduler.queue import Sequence, State, by_order


class Roster:
    """Every sequence that is not ended, in the list of its state.

    `waiting`, `prefilling` and the rows of each cohort are sorted by priority, then arrival, at all
    times; they are sorted by insertion, never in a step. `live` has those whose request still
    awaits its end.
    """

    def __init__(self, num_cohorts: int) -> None:
        self.live: dict[int, Sequence] = {}
        self.waiting: list[Sequence] = []
        self.prefilling: list[Sequence] = []
        self.cohorts = Cohorts(num_cohorts)
        self.draining: list[Sequence] = []

    @property
    def num_active(self) -> int:
        return len(self.prefilling) + self.cohorts.num_rows

    @property
    def active(self) -> list[list[Sequence]]:
        """Those that hold a slot and are in plans, as lists in order."""
        return [self.prefilling, *(cohort.rows for cohort in self.cohorts.all)]

    def add(self, sequence: Sequence) -> None:
        """A new request's sequence."""
        assert sequence.id not in self.live, f"request {sequence.id} is live already"
        self.live[sequence.id] = sequence
        insort(self.waiting, sequence, key=by_order)

    def start(self, sequence: Sequence) -> None:
        """It has a slot, and chunks to prefill."""
        self.waiting.remove(sequence)
        sequence.state = State.PREFILLING
        insort(self.prefilling, sequence, key=by_order)

    def run(self, sequence: Sequence, *, step: int) -> None:
        """Its last chunk is planned, in `step`."""
        self.prefilling.remove(sequence)
        sequence.state = State.RUNNING
        self.cohorts.add(sequence, step=step)

    def drain(self, sequence: Sequence) -> None:
        """In no further plan. It may already drain: a preempted one that now ends."""
        if sequence.state is not State.DRAINING:
            if sequence.state is State.RUNNING:
                self.cohorts.remove(sequence)
            else:
                self.prefilling.remove(sequence)
            self.draining.append(sequence)
            sequence.state = State.DRAINING
            sequence.notice = 0

    def wait_again(self, sequence: Sequence) -> None:
        """A preempted sequence that drained."""
        self.draining.remove(sequence)
        sequence.state = State.WAITING
        insort(self.waiting, sequence, key=by_order)

    def end(self, sequence: Sequence) -> None:
        """Nothing of it is left; its request had its end."""
        (self.draining if sequence.state is State.DRAINING else self.waiting).remove(sequence)
        sequence.state = State.ENDED

    def check(self) -> None:
        """Raise `AssertionError` when a sequence is in the wrong list, or in two."""
        lists = [
            (State.WAITING, self.waiting),
            (State.PREFILLING, self.prefilling),
            (State.DRAINING, self.draining),
            *((State.RUNNING, cohort.rows) for cohort in self.cohorts.all),
        ]
        seen: set[Sequence] = set()
        for state, members in lists:
            assert all(sequence.state is state for sequence in members)
            assert seen.isdisjoint(members)
            seen.update(members)
            if state is not State.DRAINING:
                assert members == sorted(members, key=by_order), f"{state.name} is out of order"
        self.cohorts.check()
        for sequence in self.live.values():
            assert sequence in seen
            assert sequence.state is not State.DRAINING or sequence.resumes
        for sequence in seen.difference(self.draining):
            assert self.live[sequence.id] is sequence
