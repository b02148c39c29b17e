"""What a gated delta layer keeps for each slot: a checkpoint of its state and records since.

With L tokens run, the checkpoint covers the first L - L % FOLD_TOKENS of them and every later one
has a record. A decode step thus reads the state and writes only at every FOLD_TOKENS-th token, and
rejected tokens cost nothing: their records are overwritten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

FOLD_TOKENS = 16
Length = TypeVar("Length", int, Tensor)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaCache:
    """state [S, Hv, Dk, Dv], keys [S, R, Hk, Dk], deltas [S, R, Hv, Dv], gates [S, R, Hv]:
    contiguous, one dtype. The record of position p lies at p % R."""

    state: Tensor
    keys: Tensor
    deltas: Tensor
    gates: Tensor

    @property
    def num_records(self) -> int:
        return self.keys.shape[1]


def folded(length: Length) -> Length:
    """How many of a slot's `length` tokens its checkpoint covers; of each of several slots."""
    return length - length % FOLD_TOKENS
