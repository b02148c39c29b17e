"""Decisions as functions of plain facts: how much prompt a step takes, who shares it, who yields,
when cohorts are uneven, where a prompt leaves snapshots.

Nothing here changes anything; `planner` acts on the answers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from draftmark.cache.spec import PAGE_TOKENS, STATE_TOKENS
from draftmark.scheduler.costs import CostTable


class _HasOrder(Protocol):
    @property
    def order(self) -> tuple[int, int]: ...


_Ordered = TypeVar("_Ordered", bound=_HasOrder)

# Beside a prompt that could fill the step alone, this share of the step is for shorter ones.
_SHARE_FOR_SHORT = 4

# What is left of prompts is not divided among turns into less than this: a step reads all weights,
# so that a smaller chunk costs about as much.
_LEAST_PART_TOKENS = 256

# Cohorts are uneven when their row counts differ by at least 2, and by more than 1/8 of the mean:
# a moved row may lose a turn, which a smaller difference would not repay.
_LEAST_UNEVEN_ROWS = 2
_UNEVEN_SHARE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the scheduler keeps to.

    Without `max_in_flight`, one plan more than cohorts may be without result: each cohort has its
    turn under way, and the next one waits at the device.

    A waiting sequence may wait `max_prefix_waits` rounds for a prefix of at least
    `min_shared_tokens` that another one is prefilling. `lookahead` waiting sequences are looked at
    in a plan, so that a long queue costs no more than a short one. A prompt leaves snapshots at
    multiples of `snapshot_grain` that save at least as much, and of `snapshot_stride`. A step
    drafts `max_drafts` tokens for each row; where it `adapts_drafts`, as many of them as pay. Where
    `drafts_from_ids`, admissions tell the ids of cached tokens.
    """

    max_context: int
    max_running: int
    prefill_tokens: int
    max_turn_ms: float | None = None
    max_in_flight: int | None = None
    num_cohorts: int = 1
    min_shared_tokens: int = 64
    max_prefix_waits: int = 64
    lookahead: int = 32
    snapshot_grain: int = 64
    snapshot_stride: int = 8192
    max_drafts: int = 0
    adapts_drafts: bool = False
    drafts_from_ids: bool = False

    def __post_init__(self) -> None:
        counts = (self.max_context, self.max_running, self.prefill_tokens, self.num_cohorts)
        if min(*counts, self.depth) < 1:
            raise ValueError(f"limits must be at least 1: {self}")
        if self.snapshot_grain % STATE_TOKENS or self.snapshot_stride % STATE_TOKENS:
            raise ValueError(f"state is saved at multiples of {STATE_TOKENS}: {self}")

    @property
    def depth(self) -> int:
        """Plans that may be without result."""
        return self.num_cohorts + 1 if self.max_in_flight is None else self.max_in_flight


def prefill_budget(
    limits: Limits,
    costs: CostTable,
    *,
    verify: tuple[int, int],
    prefill_context: int,
    drafts: int = 0,
) -> int:
    """Prompt tokens that a step may take beside `verify`, (rows, tokens of context each), with so
    many `drafts` each.

    With `max_turn_ms` and anything decoding, what fits the turn by the cost table; never less than
    a page, because a prompt that never advances is worse than a long turn.
    """
    most, turn_ms = limits.prefill_tokens, limits.max_turn_ms
    if turn_ms is None or verify[0] == 0 or costs.is_empty:
        return most

    def ms(tokens: int) -> float:
        return costs.ms(verify=verify, prefill=(tokens, prefill_context), drafts=drafts)

    fitting = bisect_right(range(1, most + 1), turn_ms, key=ms)
    return max(fitting, min(most, PAGE_TOKENS))


def part_of_turn(budget: int, *, left: int, num_cohorts: int) -> int:
    """Prompt tokens for each turn of a round, when `left` are left to prefill and no turn may have
    more than `budget`.

    Equal shares: in a pipeline one long turn holds up the turns of all cohorts, so that every turn
    of a round takes the same. The caller asks once a round, with the budget of the fullest cohort
    (a cohort with fewer verify rows gets no more than the others), and keeps the answer for the
    round's other turns. Where less is left than the budgets of a round, what is left is divided:
    it does not all go to the cohort whose turn is first.
    """
    parts = max(1, min(num_cohorts, left // _LEAST_PART_TOKENS))
    return min(budget, max(-(-left // parts), _LEAST_PART_TOKENS))


def snapshot_positions(
    limits: Limits, *, usable: int, matched: int, num_prompt: int, history: int | None
) -> list[int]:
    """Where a prompt of which `usable` tokens are restored leaves snapshots, in order.

    A snapshot is as large as the keys and values of thousands of tokens, so they are few: where the
    prompt parts from what others have sent (pages alone `matched` up to there), and the last
    multiple of `snapshot_grain` in its first `history` tokens, which the next turn of a chat
    repeats; both only where they save as much as that. In long prompts also every
    `snapshot_stride`. The last token of the prompt is never restored.
    """
    last, grain, stride = num_prompt - 1, limits.snapshot_grain, limits.snapshot_stride
    found = set(range((usable // stride + 1) * stride, num_prompt, stride))
    repeated = last if history is None else min(history, last)
    for position in (matched, repeated // grain * grain):
        if usable + grain <= position <= last:
            found.add(position)
    return sorted(found)


class Share:
    """How the prompt tokens of one step are shared out, asked in order of priority and arrival.

    The first prompt gets all it can use, but where it could use everything a quarter of the step
    is left for prompts that have less to go than it has: a short prompt does not wait for a long
    one's end, and a long one slows by a bounded factor. What nobody else takes is the first one's.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._first: tuple[int, int] | None = None  # (priority, tokens to go)
        self._first_most = 0
        self._room = budget
        self._others = 0

    @property
    def is_spent(self) -> bool:
        return self._room == 0

    def offer(self, *, priority: int, remaining: int, most: int) -> int:
        """Tokens for the next prompt, which has `remaining` to go and can take `most` of them in
        this step; 0 when its turn is later."""
        if self._first is not None:
            first_priority, first_remaining = self._first
            must_be_shorter = self._first_most >= self._budget
            if must_be_shorter and (priority != first_priority or remaining >= first_remaining):
                return 0
        return min(most, self._room)

    def accept(self, *, priority: int, remaining: int, most: int, tokens: int) -> None:
        """That prompt takes the `tokens` it was offered."""
        if self._first is None:
            self._first, self._first_most = (priority, remaining), most
            fills = most >= self._budget
            self._room = self._budget // _SHARE_FOR_SHORT if fills else self._budget - tokens
        else:
            self._room -= tokens
            self._others += tokens

    @property
    def first_tokens(self) -> int:
        """Tokens of the first prompt, once all others were asked."""
        return min(self._first_most, self._budget - self._others)


def victim(active: Iterable[Sequence[_Ordered]]) -> _Ordered:
    """Who yields its pages: the lowest priority, and of those the latest arrival. Each list is in
    order; the first of all is chosen only when it is alone."""
    last = [members[-1] for members in active if members]
    return max(last, key=lambda sequence: sequence.order)


def is_uneven(rows: Sequence[int]) -> bool:
    """Whether cohorts of so many rows each differ by enough to move rows."""
    gap = max(rows) - min(rows)
    return gap >= _LEAST_UNEVEN_ROWS and gap * _UNEVEN_SHARE * len(rows) > sum(rows)
