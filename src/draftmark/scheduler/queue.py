"""A sequence (what runs for a request), its life, and the lists it moves through.

    waiting ──► prefilling ──► running ──► draining ──► ended
       ▲            │             │           │
       └────────────┴── preempted ┴───────────┘

*Draining* is in no further plan, but still in plans without result; pages and slot are given up
when the last of them has its result. A preempted sequence waits again after it drained, with its
output as part of what it prefills.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from enum import Enum, auto
from operator import attrgetter

from draftmark.cache.manager import Holding
from draftmark.core.request import FinishReason, Request
from draftmark.core.step import RowSampling, TokenLogprobs, VerifyRow

_NO_ROW = VerifyRow(0, 0)


class State(Enum):
    WAITING = auto()
    PREFILLING = auto()
    RUNNING = auto()
    DRAINING = auto()
    ENDED = auto()


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """The record of one sequence. Counts are tokens; `end` and `min_end` are totals as in `Admit`.

    `tokens` is the prompt and all output that was delivered. `planned` is how far prefill chunks
    are planned; `bound` is the most the slot's length can be once all planned steps ran, and
    `horizon` the bound below which a verify row may be planned without looking closer. `length` is
    the slot's length as last heard, and `notice` the one from which a result needs a closer look.
    """

    id: int
    request: Request
    order: tuple[int, int]
    sampling: RowSampling
    tokens: list[int]
    num_prompt: int
    end: int
    min_end: int
    holding: Holding
    cohort: int = 0
    state: State = State.WAITING

    # Of the present stay in a slot.
    slot: int = 0
    generation: int = 0
    row: VerifyRow = _NO_ROW
    num_prefill: int = 0
    planned: int = 0
    bound: int = 0
    horizon: int = 0
    length: int = 0
    notice: int = 0
    last_step: int = -1

    # Over its whole life.
    resumes: bool = False
    waits: int = 0
    cached_tokens: int = -1
    is_first_output: bool = True
    finish_at: tuple[int, FinishReason] | None = None
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)

    @property
    def num_output(self) -> int:
        return len(self.tokens) - self.num_prompt

    @property
    def wants_prompt_logprobs(self) -> bool:
        """Whether the prompt must (still) be run for its log-probabilities."""
        return self.request.sampling.prompt_logprobs is not None and self.is_first_output


by_order = attrgetter("order")


class Roster:
    """Every sequence that is not ended, in the list of its state.

    `waiting`, `prefilling` and `running` are sorted by priority, then arrival, at all times; they
    are sorted by insertion, never in a step. `live` has those whose request still awaits its end.
    """

    def __init__(self) -> None:
        self.live: dict[int, Sequence] = {}
        self.waiting: list[Sequence] = []
        self.prefilling: list[Sequence] = []
        self.running: list[Sequence] = []
        self.draining: list[Sequence] = []

    @property
    def num_active(self) -> int:
        return len(self.prefilling) + len(self.running)

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

    def run(self, sequence: Sequence) -> None:
        """Its last chunk is planned."""
        self.prefilling.remove(sequence)
        sequence.state = State.RUNNING
        insort(self.running, sequence, key=by_order)

    def drain(self, sequence: Sequence) -> None:
        """In no further plan. It may already drain: a preempted one that now ends."""
        if sequence.state is not State.DRAINING:
            self._list_of(sequence).remove(sequence)
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

    def _list_of(self, sequence: Sequence) -> list[Sequence]:
        return self.running if sequence.state is State.RUNNING else self.prefilling

    def check(self) -> None:
        """Raise `AssertionError` when a sequence is in the wrong list, or in two."""
        lists = (
            (State.WAITING, self.waiting),
            (State.PREFILLING, self.prefilling),
            (State.RUNNING, self.running),
            (State.DRAINING, self.draining),
        )
        seen: set[Sequence] = set()
        for state, members in lists:
            assert all(sequence.state is state for sequence in members)
            assert seen.isdisjoint(members)
            seen.update(members)
            if state is not State.DRAINING:
                assert members == sorted(members, key=by_order), f"{state.name} is out of order"
        for sequence in self.live.values():
            assert sequence in seen
            assert sequence.state is not State.DRAINING or sequence.resumes
        for sequence in self.waiting + self.prefilling + self.running:
            assert self.live[sequence.id] is sequence
