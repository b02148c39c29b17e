"""What stages tell one another in a step, as columns and sections of int64 words.

Forward, beside the hidden states: protocol faults so far, then a row of `ROW_COLUMNS` for each row
that samples, then the first non-finite layer of each row of the plan. Later stages keep no lengths:
this is all they know of a verify row.

Back to stage 0: a row of `PACKED_COLUMNS` for each row that samples. `EMITTED`, `FOLD` and `LENGTH`
are three words, because they differ exactly where speculation goes wrong. The host gets the same
rows.

Legend: M rows that sample, R prefill rows, B verify rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from draftmark.core.step import StepPlan
from draftmark.parallel.lanes import Label, Shape

# Of a row that samples, before it does: tokens written so far, whether it is inert, and how many
# tokens its last step added that a recurrent state has yet to fold in.
LENGTH, DONE, FOLD = range(3)
ROW_COLUMNS = 3

# Of a row that sampled.
(
    PACKED_SLOT,
    PACKED_GENERATION,
    PACKED_LENGTH,
    PACKED_TOKEN,
    PACKED_DONE,
    PACKED_EMITTED,
    PACKED_FOLD,
    PACKED_BAD_LAYER,
) = range(8)
PACKED_COLUMNS = 8

_FAULT_WORDS = 1


class RowWords(NamedTuple):
    """The words of a forward message, as views of it or as the first stage makes them."""

    faults: Tensor  # [1]
    rows: Tensor  # [M, ROW_COLUMNS]
    bad_layer: Tensor  # [R + B], -1 for none


@dataclass(frozen=True, slots=True)
class StepSize:
    """Counts of one plan."""

    num_sampling: int
    num_rows: int
    num_tokens: int

    @classmethod
    def of(cls, plan: StepPlan) -> StepSize:
        sampling = sum(row.samples for row in plan.prefill) + len(plan.verify)
        return cls(sampling, len(plan.prefill) + len(plan.verify), plan.num_tokens)

    @property
    def forward(self) -> Shape:
        return Shape(forward_words(self.num_sampling, self.num_rows), self.num_tokens)

    @property
    def backward(self) -> Shape:
        return Shape(self.num_sampling * PACKED_COLUMNS)

    def split(self, words: Tensor) -> RowWords:
        """The sections of a forward message's words."""
        first = _FAULT_WORDS + self.num_sampling * ROW_COLUMNS
        rows = words[_FAULT_WORDS:first].view(self.num_sampling, ROW_COLUMNS)
        return RowWords(words[:_FAULT_WORDS], rows, words[first:])


def forward_words(num_sampling: int, num_rows: int) -> int:
    return _FAULT_WORDS + num_sampling * ROW_COLUMNS + num_rows


def label_of(plan: StepPlan) -> Label:
    """What both ends of a lane expect a message of this plan to be labelled."""
    prefill = [(row.slot, row.generation, row.start) for row in plan.prefill]
    verify = [(row.slot, row.generation) for row in plan.verify]
    # Hashes of integers are the same in every process.
    return Label(plan.step, plan.cohort, hash((*prefill, *verify)))
