"""What verify rows' attention layers share in one step."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from draftmark.kernels.attention import AttentionShape
from draftmark.kernels.rope import RopeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsLayout:
    """B rows of `width` tokens: pages [B, P] int32, lengths [B] and first [B] int64 (None for 0) as
    in `kernels.attention`; store and positions [B * width] int64. A token that is stored has its
    place in a page other than 0, and those of a row come before the others."""

    shape: AttentionShape
    table: RopeTable
    width: int
    pages: Tensor
    lengths: Tensor
    store: Tensor
    positions: Tensor
    first: Tensor | None
