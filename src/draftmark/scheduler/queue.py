"""A sequence (what runs for a request) and its life.

    waiting ──► prefilling ──► running ──► draining ──► ended
       ▲            │             │           │
       └────────────┴── preempted ┴───────────┘

*Draining* is in no further plan, but still in plans without result; pages and slot are given up
when the last of them has its result. A preempted sequence waits again after it drained, with its
output as part of what it prefills. `roster` has the lists, `cohorts` that of the running ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from operator import attrgetter

from draftmark.cache.holding import Holding
from draftmark.core.messages import DraftUse
from draftmark.core.request import FinishReason, Request
from draftmark.core.step import RowSampling, TokenLogprobs, VerifyRow

# A step before all others, by more than any rule looks back.
NEVER = -(1 << 40)

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
    are planned; `ahead` are the tokens that planned steps without result run, drafts included,
    `bound` the most the slot's length can be once all of them ran, and `horizon` what a verify row
    may reach without looking closer. `length` is the slot's length as last heard, and `notice` the
    one from which a result needs a closer look. `drafts` is how many its last step may have left,
    `max_drafts` how many it may have at all. `last_step` is the last step planned with it, `cohort`
    the one it decodes in once it runs, and `moved_at` the step at which it last changed that.
    `windows` counts those that had drafts, `drafted` and `accepted` these drafts.
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
    max_drafts: int = 0
    state: State = State.WAITING

    # Of the present stay in a slot.
    slot: int = 0
    generation: int = 0
    row: VerifyRow = _NO_ROW
    num_prefill: int = 0
    planned: int = 0
    ahead: int = 0
    bound: int = 0
    drafts: int = 0
    horizon: int = 0
    length: int = 0
    notice: int = 0
    last_step: int = -1
    cohort: int = 0

    # Over its whole life.
    resumes: bool = False
    moved_at: int = NEVER
    waits: int = 0
    cached_tokens: int = -1
    is_first_output: bool = True
    finish_at: tuple[int, FinishReason] | None = None
    windows: int = 0
    drafted: int = 0
    accepted: int = 0
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)

    @property
    def most(self) -> int:
        """The length at which nothing is left to run."""
        return max(self.end - 1, self.num_prompt)

    @property
    def draft_use(self) -> DraftUse | None:
        if self.windows == 0:
            return None
        return DraftUse(self.windows, self.drafted, self.accepted)

    @property
    def num_output(self) -> int:
        return len(self.tokens) - self.num_prompt

    @property
    def wants_prompt_logprobs(self) -> bool:
        """Whether the prompt must (still) be run for its log-probabilities."""
        return self.request.sampling.prompt_logprobs is not None and self.is_first_output


by_order = attrgetter("order")
