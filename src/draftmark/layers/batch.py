"""`Batch`: what one forward of a stage needs to know about its tokens.

Tokens are flat. Prefill rows' tokens come first, in row order, then one block of verify rows, q
tokens each. The host knows everything about a prefill row; of a verify row it knows only the
slot, so its positions and lengths are device tensors and nothing here may force a host read.

Legend: N tokens, R prefill rows, B verify rows, q verify width, P page-table columns.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillSpan:
    """One prefill row: tokens offset .. offset + count - 1 of the batch, at positions from `start`.

    `pages` [P] int32 is the slot's page table row (a view), valid for start + count tokens; `slot`
    is where the row's recurrent state is. There are no keys before `first`.
    """

    offset: int
    count: int
    start: int
    pages: Tensor
    slot: int
    first: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """`store` is the flat pool index (page * page_tokens + offset in page) each token's K and V
    go to; tokens that must not be stored have an index inside page 0, the dump page.

    `verify_pages` [B, P] int32 has as many columns as the longest verify row's table may need (a
    host bound from the pages handed out). `verify_lengths` [B] int64 counts the keys of each row
    before this step; token j of row b sits at position verify_lengths[b] + j and sees keys up to
    itself. `verify_slots` [B] int64 is where each row's recurrent state is, `verify_folds` [B]
    int64 how many tokens its last step added, which are not folded into that state yet. Inactive
    rows (done, padding) have length 0, slot 0 and fold 0, and store to the dump page. There are no
    keys before `verify_first` [B] int64, None for 0.
    """

    positions: Tensor  # [N] int64
    store: Tensor  # [N] int64
    prefill: tuple[PrefillSpan, ...]
    verify_offset: int
    verify_width: int
    verify_pages: Tensor  # [B, P] int32
    verify_lengths: Tensor  # [B] int64
    verify_slots: Tensor  # [B] int64
    verify_folds: Tensor  # [B] int64
    verify_first: Tensor | None = None

    @property
    def num_verify(self) -> int:
        return int(self.verify_pages.shape[0])
