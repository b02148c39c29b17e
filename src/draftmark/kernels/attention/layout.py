"""What attention is told about a step's tokens, in words that need nothing of ours."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillLayout:
    """Tokens offset .. offset + count - 1 sit at positions from `start`; `pages` [P] int32. Keys
    before `first` <= start are not there."""

    offset: int
    count: int
    start: int
    pages: Tensor
    first: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyLayout:
    """B rows of `width` tokens each, from token `offset` on; lengths count keys before the step.

    pages [B, P] int32, lengths [B] int64, store [B * width] int64: the flat pool place of each
    token, inside page 0 for tokens that are not stored. Keys before `first` [B] int64, at most the
    lengths, are not there; None for 0.
    """

    offset: int
    width: int
    pages: Tensor
    lengths: Tensor
    store: Tensor
    first: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """What is the same in every layer. `scale` multiplies q k before the softmax."""

    num_heads: int
    kv_heads: int
    head_dim: int
    page_tokens: int
    scale: float

    @property
    def group(self) -> int:
        """Query heads that share one KV head; head h uses KV head h // group."""
        return self.num_heads // self.kv_heads
