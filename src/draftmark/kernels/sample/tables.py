"""What a sampling row needs to know, kept per slot, and the host flags that say what applies.

Legend: S slots, R rows of one step, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

from torch import Tensor

# A token that stands in the prompt has this bit in its count; the bits below count its outputs.
IN_PROMPT = 1 << 30
OUTPUT_COUNT = IN_PROMPT - 1

# Columns of `SampleTables.floats` and `SampleTables.ints`.
TEMPERATURE, TOP_P, MIN_P, PRESENCE, FREQUENCY, REPETITION = range(6)
NUM_FLOATS = 6
SEED, TOP_K, MIN_END = range(3)
NUM_INTS = 3


class RowFlag(IntFlag):
    """What a row may need, known to the host when the slot is admitted.

    Flags only save work: a row with a flag it does not need gets the same token.
    """

    PLAIN = 0
    BIAS = 1
    MIN_TOKENS = 2
    PENALTIES = 4
    RANDOM = 8
    TRUNCATED = 16


PROCESSED = RowFlag.BIAS | RowFlag.MIN_TOKENS | RowFlag.PENALTIES


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTables:
    """Sampling parameters of every slot; the kernels only read them.

    `floats` and `ints` have the columns named above; `TOP_K` is 0 for none, `MIN_END` the total
    token count below which `stop_ids` cannot be sampled. Unused entries of `stop_ids` and
    `bias_ids` are -1, of `bias_values` 0.
    """

    floats: Tensor  # [S, NUM_FLOATS] float64
    ints: Tensor  # [S, NUM_INTS] int64
    stop_ids: Tensor  # [S, MAX_STOP_IDS] int64
    bias_ids: Tensor  # [S, MAX_LOGIT_BIAS] int64
    bias_values: Tensor  # [S, MAX_LOGIT_BIAS] float64
    counts: Tensor  # [S, V] int32: IN_PROMPT | number of times emitted


@dataclass(frozen=True, slots=True, kw_only=True)
class Logprobs:
    """Under the model's own distribution. `rank` is 1 for the most likely token."""

    chosen: Tensor  # [R] float64
    rank: Tensor  # [R] int64
    top_ids: Tensor  # [R, n] int64, most likely first, ties by the lowest id
    top_values: Tensor  # [R, n] float64
