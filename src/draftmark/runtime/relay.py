"""What stages tell one another in a step, as columns and sections of int64 words.

Forward, beside the hidden states: protocol faults so far, then a row for each row that samples,
then the first non-finite layer of each row of the plan. Later stages keep no lengths: this is all
they know of a verify row.

Back to stage 0: a row for each row that samples. `EMITTED`, `FOLD` and `LENGTH` are three words,
because they differ exactly where speculation goes wrong. The host gets the same rows.

Legend: M rows that sample, R prefill rows, B verify rows, q verify width, k drafts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from draftmark.core.step import StepPlan
from draftmark.parallel.lanes import Label, Shape

# Of a row that samples, before it does: tokens written so far, whether it is inert, how many
# tokens its last step added that a recurrent state has yet to fold in, how many drafts it has;
# then its pending token and the drafts.
LENGTH, DONE, FOLD, DRAFTS, TOKEN = range(5)

# Of a row that sampled: `PACKED_DRAFTED` is how many drafts its window had, `PACKED_DRAFTS` how
# many its next one has. Then those drafts, and the tokens it emitted.
(
    PACKED_SLOT,
    PACKED_GENERATION,
    PACKED_LENGTH,
    PACKED_DONE,
    PACKED_FOLD,
    PACKED_DRAFTS,
    PACKED_DRAFTED,
    PACKED_EMITTED,
    PACKED_BAD_LAYER,
    PACKED_TOKEN,
) = range(10)

_FAULT_WORDS = 1


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Widths of rows where a step drafts at most `max_drafts` tokens: the same on all stages."""

    max_drafts: int = 0

    @property
    def row_columns(self) -> int:
        """Of a row that samples, before it does."""
        return TOKEN + 1 + self.max_drafts

    @property
    def packed_emitted(self) -> int:
        """The first column of emitted tokens in a row that sampled."""
        return PACKED_TOKEN + 1 + self.max_drafts

    @property
    def packed_columns(self) -> int:
        return self.packed_emitted + self.max_drafts + 1


class RowWords(NamedTuple):
    """The words of a forward message, as views of it or as the first stage makes them."""

    faults: Tensor  # [1]
    rows: Tensor  # [M, row_columns]
    bad_layer: Tensor  # [R + B], -1 for none


@dataclass(frozen=True, slots=True)
class StepSize:
    """Counts of one plan, and the layout of its rows."""

    num_sampling: int
    num_rows: int
    num_tokens: int
    layout: RowLayout

    @classmethod
    def of(cls, plan: StepPlan, layout: RowLayout) -> StepSize:
        sampling = sum(row.samples for row in plan.prefill) + len(plan.verify)
        return cls(sampling, len(plan.prefill) + len(plan.verify), plan.num_tokens, layout)

    @property
    def forward(self) -> Shape:
        words = forward_words(self.num_sampling, self.num_rows, layout=self.layout)
        return Shape(words, self.num_tokens)

    @property
    def backward(self) -> Shape:
        return Shape(self.num_sampling * self.layout.packed_columns)

    def split(self, words: Tensor) -> RowWords:
        """The sections of a forward message's words."""
        columns = self.layout.row_columns
        first = _FAULT_WORDS + self.num_sampling * columns
        rows = words[_FAULT_WORDS:first].view(self.num_sampling, columns)
        return RowWords(words[:_FAULT_WORDS], rows, words[first:])


def forward_words(num_sampling: int, num_rows: int, *, layout: RowLayout) -> int:
    return _FAULT_WORDS + num_sampling * layout.row_columns + num_rows


def own_places(rows: Tensor, *, ends: Tensor, width: int) -> Tensor:
    """Which of the `width` places of their windows are tokens of verify rows [B, row_columns]: [B,
    width] bool. What is no draft, or lies beyond `ends` [B], is nobody's, whatever is there."""
    column = torch.arange(width, device=rows.device)
    is_drafted = column <= rows[:, DRAFTS, None]
    return is_drafted & (rows[:, LENGTH, None] + column < ends[:, None])


def label_of(plan: StepPlan) -> Label:
    """What both ends of a lane expect a message of this plan to be labelled."""
    prefill = [(row.slot, row.generation, row.start) for row in plan.prefill]
    verify = [(row.slot, row.generation) for row in plan.verify]
    widths = (plan.verify_k, plan.draft_k)
    # Hashes of integers are the same in every process.
    return Label(plan.step, plan.cohort, hash((*prefill, *verify, widths)))
