"""Attention through torch's own scaled_dot_product_attention, over keys gathered from the pages.

Each piece of work gathers its keys and values into one contiguous buffer and makes one call. Where
a row has fewer keys than its piece is wide, the gather repeats the row's last key and an additive
mask takes it out: nothing that was not stored is ever loaded. Query heads that share a KV head are
folded into query rows, which on a CPU is up to 12 times faster than repeating the keys.

One call for all verify rows is fastest as long as they are about equally long. Where padding the
short ones to the longest would cost more than further calls, and where the gather would take too
much memory, rows are sorted by length and cut into groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from draftmark.kernels.attention.layout import AttentionShape, PrefillLayout, VerifyLayout

GROUP_BYTES = 32 << 20  # of one gather of several rows
# Padding of a group that costs less than another call: keys, and as a share of what is stored.
_FREE_PADDING = 512
_PADDING_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class _PrefillPiece:
    """`places` [S] int64; `mask` [count, S] additive, or None where plain causal does."""

    first: int
    last: int
    places: Tensor
    mask: Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _VerifyPiece:
    """Rows first .. last - 1 (of the sorted order), all padded to `num_keys` keys.

    places [rows * num_keys] int64; mask [rows, 1, 1 or width * group, num_keys] or None.
    """

    first: int
    last: int
    num_keys: int
    places: Tensor
    mask: Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`order` sorts verify rows into pieces and `back` undoes it; both None for one piece."""

    shape: AttentionShape
    prefill: tuple[_PrefillPiece, ...]
    verify: tuple[_VerifyPiece, ...]
    verify_offset: int
    width: int
    order: Tensor | None
    back: Tensor | None

    def attend(self, q: Tensor, pool: Tensor) -> Tensor:
        stored = pool.view(-1, *pool.shape[2:])
        if not self.prefill:
            return self._verify(q, stored)
        parts = [self._prefill(q, stored, piece) for piece in self.prefill]
        if self.verify:
            parts.append(self._verify(q, stored))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _prefill(self, q: Tensor, stored: Tensor, piece: _PrefillPiece) -> Tensor:
        rows = q[piece.first : piece.last].transpose(0, 1).unsqueeze(0)
        kv = stored.index_select(0, piece.places).to(q.dtype).transpose(0, 1).unsqueeze(0)
        k, v = kv.chunk(2, dim=1)
        out = F.scaled_dot_product_attention(
            rows,
            k,
            v,
            attn_mask=piece.mask,
            is_causal=piece.mask is None,
            scale=self.shape.scale,
            enable_gqa=self.shape.group > 1,
        )
        return out[0].transpose(0, 1).reshape(piece.last - piece.first, -1)

    def _verify(self, q: Tensor, stored: Tensor) -> Tensor:
        shape, width = self.shape, self.width
        rows = q[self.verify_offset :] if self.prefill else q
        if self.order is not None:
            rows = rows.view(-1, width, *rows.shape[1:]).index_select(0, self.order)
        folded = (-1, shape.kv_heads, width * shape.group, shape.head_dim)
        if width > 1:
            rows = rows.view(-1, width, shape.kv_heads, shape.group, shape.head_dim)
            rows = rows.transpose(1, 2).reshape(folded)
        else:
            rows = rows.view(folded)
        if len(self.verify) == 1:
            out = self._verify_piece(rows, stored, self.verify[0])
        else:
            out = torch.cat([self._verify_piece(rows, stored, piece) for piece in self.verify])
        if width > 1:
            unfolded = (-1, shape.kv_heads, width, shape.group, shape.head_dim)
            out = out.reshape(unfolded).transpose(1, 2)
        if self.back is not None:
            out = out.index_select(0, self.back)
        return out.reshape(-1, shape.num_heads * shape.head_dim)

    def _verify_piece(self, rows: Tensor, stored: Tensor, piece: _VerifyPiece) -> Tensor:
        """`rows` [B, K, width * group, D] of all pieces -> this piece's, alike."""
        shape, num_rows = self.shape, piece.last - piece.first
        if num_rows < rows.shape[0]:
            rows = rows[piece.first : piece.last]
        gathered = (num_rows, piece.num_keys, 2 * shape.kv_heads, shape.head_dim)
        kv = stored.index_select(0, piece.places).view(gathered).to(rows.dtype).transpose(1, 2)
        k, v = kv.chunk(2, dim=1)
        return F.scaled_dot_product_attention(rows, k, v, attn_mask=piece.mask, scale=shape.scale)


def workspace_bytes(shape: AttentionShape, *, rows: int, context: int, itemsize: int) -> int:
    """Keys and values of one gather, and again in q's dtype when the pool has another one."""
    row = 2 * context * shape.kv_heads * shape.head_dim * itemsize
    return 2 * max(row, min(rows * row, GROUP_BYTES))


def plan(
    shape: AttentionShape,
    prefill: Sequence[PrefillLayout],
    verify: VerifyLayout | None,
    dtype: torch.dtype,
) -> Plan:
    pieces: tuple[_VerifyPiece, ...] = ()
    order = back = None
    if verify is not None:
        order, back, pieces = _plan_verify(shape, verify, dtype)
    return Plan(
        shape=shape,
        prefill=tuple(_plan_prefill(shape, row, dtype) for row in prefill),
        verify=pieces,
        verify_offset=0 if verify is None else verify.offset,
        width=1 if verify is None else verify.width,
        order=order,
        back=back,
    )


def _plan_prefill(shape: AttentionShape, row: PrefillLayout, dtype: torch.dtype) -> _PrefillPiece:
    num_keys = row.start + row.count
    position = torch.arange(row.first, num_keys, device=row.pages.device)
    mask = None
    if row.start > row.first:
        own = torch.arange(row.start, num_keys, device=row.pages.device)
        mask = _additive(position <= own[:, None], dtype)
    return _PrefillPiece(
        first=row.offset,
        last=row.offset + row.count,
        places=_places(row.pages[None], position[None], shape.page_tokens).view(-1),
        mask=mask,
    )


def _plan_verify(
    shape: AttentionShape, verify: VerifyLayout, dtype: torch.dtype
) -> tuple[Tensor | None, Tensor | None, tuple[_VerifyPiece, ...]]:
    num_rows = verify.lengths.shape[0]
    stored = (verify.store.view(num_rows, verify.width) >= shape.page_tokens).sum(dim=1)
    # A row with nothing to see reads page 0 and gives an undefined result.
    num_keys = (verify.lengths + stored).clamp_(min=1)
    counts = num_keys.tolist()
    order = sorted(range(num_rows), key=counts.__getitem__)
    token_bytes = 2 * shape.kv_heads * shape.head_dim * dtype.itemsize
    groups = _groups([counts[row] for row in order], token_bytes)
    if len(groups) == 1:
        return None, None, (_verify_piece(shape, verify, num_keys, slice(0, num_rows), dtype),)
    index = torch.tensor(order, device=verify.lengths.device)
    sorted_keys = num_keys[index]
    sorted_verify = VerifyLayout(
        offset=verify.offset,
        width=verify.width,
        pages=verify.pages[index],
        lengths=verify.lengths[index],
        store=verify.store,
        first=None if verify.first is None else verify.first[index],
    )
    pieces = tuple(_verify_piece(shape, sorted_verify, sorted_keys, rows, dtype) for rows in groups)
    return index, torch.argsort(index), pieces


def _groups(counts: Sequence[int], token_bytes: int) -> list[slice]:
    """Cut rows of ascending key counts into groups, each padded to its last row: of at most
    `GROUP_BYTES` where it is more than one row, and with little padding."""
    groups, first, stored = [], 0, 0
    for row, count in enumerate(counts):
        padded = (row + 1 - first) * count
        padding = padded - stored - count
        is_wasteful = padding > max(_FREE_PADDING, _PADDING_SHARE * stored)
        if row > first and (is_wasteful or padded * token_bytes > GROUP_BYTES):
            groups.append(slice(first, row))
            first, stored = row, 0
        stored += count
    groups.append(slice(first, len(counts)))
    return groups


def _verify_piece(
    shape: AttentionShape,
    verify: VerifyLayout,
    num_keys: Tensor,
    rows: slice,
    dtype: torch.dtype,
) -> _VerifyPiece:
    """`num_keys` [B] counts the stored keys of each row, this step's included."""
    stored, lengths = num_keys[rows, None], verify.lengths[rows, None]
    width = int(stored.max())
    position = torch.arange(width, device=stored.device)[None]
    loaded = position.minimum(stored - 1)
    # Of a row with nothing to see `first` may be anything.
    first = None if verify.first is None else verify.first[rows, None].minimum(stored - 1)
    if first is not None:
        loaded = loaded.maximum(first)
    places = _places(verify.pages[rows], loaded, shape.page_tokens)
    mask = None
    if verify.width > 1:
        own = (lengths + torch.arange(verify.width, device=stored.device)).minimum(stored - 1)
        visible = position[:, None] <= own[:, :, None]
        if first is not None:
            visible &= position[:, None] >= first[:, :, None]
        mask = _additive(visible, dtype)
        mask = mask.repeat_interleave(shape.group, dim=1)[:, None]
    elif first is not None:
        visible = (position < stored) & (position >= first)
        mask = _additive(visible, dtype)[:, None, None]
    elif int(stored.min()) < width:
        mask = _additive(position < stored, dtype)[:, None, None]
    return _VerifyPiece(
        first=rows.start, last=rows.stop, num_keys=width, places=places.view(-1), mask=mask
    )


def _places(pages: Tensor, position: Tensor, page_tokens: int) -> Tensor:
    """pages [B, P], position [B, S] or [1, S] -> [B, S] flat places in the pool."""
    position = position.expand(pages.shape[0], -1)
    page = pages.gather(1, position // page_tokens)
    return page.to(torch.int64) * page_tokens + position % page_tokens


def _additive(visible: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(
        ~visible, float("-inf")
    )
