"""What verify rows and prompts find in the cache, and how records are folded into a state.

Where the host may read device values (a CPU), `ListedRows` names each row's slot and length: states
and records are used where they lie, since moving them is what a decode step would spend its time
on. Elsewhere `GatheredRows` gathers as many records for each row as there may be and blanks what
is not one. Legend: B rows, w new tokens each; before them E = FOLD_TOKENS places, the last ones its
records and the first one never: r = Hv / Hk.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from draftmark.kernels.gated_delta.cache import FOLD_TOKENS, DeltaCache, folded
from draftmark.kernels.spans import read_ring, ring_pieces


def state_at(cache: DeltaCache, slot: int, length: int) -> Tensor:
    """A copy of the state after `length` tokens, [Hv, Dk, Dv]."""
    if length == 0:
        return torch.zeros_like(cache.state[slot])
    state = cache.state[slot].clone()
    if length > folded(length):
        _fold_records(state, cache, slot, folded(length), length - folded(length))
    return state


def fold(state: Tensor, keys: Tensor, deltas: Tensor, total: Tensor) -> None:
    """state [..., Hv, Dk, Dv] moves on, in place, by t tokens: keys [..., Hk, t, Dk], deltas
    [..., Hv, t, Dv], total [..., Hv, t] float64, the sums of their gates from where it stands."""
    leaving = (total[..., -1:] - total).to(state.dtype).exp_()
    keys = keys.repeat_interleave(deltas.shape[-3] // keys.shape[-3], dim=-3)
    state *= total[..., -1:, None].to(state.dtype).exp()
    added = leaving[..., None] * deltas
    state.flatten(0, -3).baddbmm_(keys.transpose(-1, -2).flatten(0, -3), added.flatten(0, -3))


def _fold_records(state: Tensor, cache: DeltaCache, slot: int, first: int, count: int) -> None:
    keys, deltas, gates = (
        read_ring(x[slot], first, count) for x in (cache.keys, cache.deltas, cache.gates)
    )
    total = gates.t().cumsum(-1, dtype=torch.float64)
    fold(state, keys.transpose(0, 1), deltas.transpose(0, 1), total)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRows:
    """rows are (slot, length); `pieces` of a row are the runs its records lie in: (first place in
    the flat rings, first of the E places, count)."""

    cache: DeltaCache
    rows: list[tuple[int, int]]
    pieces: list[list[tuple[int, int, int]]]

    @classmethod
    def of(cls, cache: DeltaCache, slots: Tensor, lengths: Tensor, folds: Tensor) -> ListedRows:
        """Folds what is due."""
        rows = list(zip(slots.tolist(), lengths.tolist(), strict=True))
        pieces, depth = [], cache.num_records
        for (slot, length), fold_count in zip(rows, folds.tolist(), strict=True):
            for first in range(folded(length - fold_count), folded(length), FOLD_TOKENS):
                _fold_records(cache.state[slot], cache, slot, first, FOLD_TOKENS)
            count = length % FOLD_TOKENS
            runs = ring_pieces(length - count, count, depth)
            pieces.append([(slot * depth + p, FOLD_TOKENS - count + i, n) for p, i, n in runs])
        return cls(cache=cache, rows=rows, pieces=pieces)

    def new_places(self, width: int) -> Tensor:
        """[B w], where the new tokens' records belong in the flat rings."""
        depth = self.cache.num_records
        return torch.tensor(
            [
                slot * depth + (length + j) % depth
                for slot, length in self.rows
                for j in range(width)
            ]
        )

    def gates(self, new: Tensor) -> Tensor:
        """[B, E + w, Hv]: those of the records, after zeros, and the new ones, [B, w, Hv]."""
        out = new.new_zeros(new.shape[0], FOLD_TOKENS + new.shape[1], new.shape[2])
        out[:, FOLD_TOKENS:] = new
        stored = self.cache.gates.flatten(0, 1)
        for row, pieces in zip(out.unbind(), self.pieces, strict=True):
            for place, index, count in pieces:
                row.narrow(0, index, count).copy_(stored.narrow(0, place, count))
        return out

    def seen(self, both: Tensor, decay: Tensor) -> Tensor:
        """What k and q of the new tokens, `both` [B, Hk, 2, w, Dk], read from states and records,
        [B, Hv, 2, w, Dv]. decay [B, Hk, r, 1, w, E ...] is that since each of the E places: since
        the first, where no record is, it is that since the checkpoint."""
        cache, (num_rows, key_heads, _, width, key_dim) = self.cache, both.shape
        num_heads, value_dim = cache.deltas.shape[2:]
        probes = (both[:, :, None] * decay[..., :1]).reshape(num_rows, num_heads, -1, key_dim)
        out = both.new_empty(num_rows, num_heads, 2 * width, value_dim)
        keys = cache.keys.flatten(0, 1).permute(1, 2, 0)
        deltas = cache.deltas.flatten(0, 1).transpose(0, 1)
        tensors = zip(probes, both.flatten(2, 3), decay, out, strict=True)
        for (slot, _), pieces, row in zip(self.rows, self.pieces, tensors, strict=True):
            probe, pair, since, seen = row
            torch.bmm(probe, cache.state[slot], out=seen)
            for place, index, count in pieces:
                scores = torch.bmm(pair, keys.narrow(2, place, count))
                scores = scores.view(key_heads, 1, 2, width, count) * since.narrow(4, index, count)
                scores = scores.view(num_heads, 2 * width, count)
                seen.baddbmm_(scores, deltas.narrow(1, place, count))
        return out.view(num_rows, num_heads, 2, width, value_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredRows:
    """slots, lengths [B]; places [B, E] in the flat rings, `is_blank` where there is no record."""

    cache: DeltaCache
    slots: Tensor
    lengths: Tensor
    places: Tensor
    is_blank: Tensor

    @classmethod
    def of(cls, cache: DeltaCache, slots: Tensor, lengths: Tensor, folds: Tensor) -> GatheredRows:
        """Folds what is due: reads and writes the state of every row, since the host does not know
        which ones fold."""
        index = torch.arange(FOLD_TOKENS, device=slots.device)
        first, last = folded(lengths - folds)[:, None], folded(lengths)[:, None]
        state = cache.state.index_select(0, slots)
        max_folds = (cache.num_records - FOLD_TOKENS + 1) // 2
        for _ in range(-(-max_folds // FOLD_TOKENS)):
            position = first + index
            places, is_idle = _places(cache, slots, position), position >= last
            gates = _select(cache.gates, places, is_idle).transpose(1, 2)
            keys, deltas = (
                _select(x, places, is_idle).transpose(1, 2) for x in (cache.keys, cache.deltas)
            )
            fold(state, keys, deltas, gates.cumsum(-1, dtype=torch.float64))
            first = first + FOLD_TOKENS
        cache.state.index_copy_(0, slots, state)
        position = lengths[:, None] - FOLD_TOKENS + index
        return cls(
            cache=cache,
            slots=slots,
            lengths=lengths,
            places=_places(cache, slots, position),
            is_blank=position < last,
        )

    def new_places(self, width: int) -> Tensor:
        index = torch.arange(width, device=self.slots.device)
        return _places(self.cache, self.slots, self.lengths[:, None] + index).view(-1)

    def gates(self, new: Tensor) -> Tensor:
        return torch.cat((_select(self.cache.gates, self.places, self.is_blank), new), dim=1)

    def seen(self, both: Tensor, decay: Tensor) -> Tensor:
        cache, (num_rows, key_heads, _, width, key_dim) = self.cache, both.shape
        num_heads, value_dim = cache.deltas.shape[2:]
        keys, deltas = (
            _select(x, self.places, self.is_blank).transpose(1, 2)
            for x in (cache.keys, cache.deltas)
        )
        probes = (both[:, :, None] * decay[..., :1]).reshape(num_rows, num_heads, -1, key_dim)
        scores = torch.matmul(both.flatten(2, 3), keys.transpose(2, 3))
        scores = scores.view(num_rows, key_heads, 1, 2, width, -1) * decay[..., :FOLD_TOKENS]
        seen = torch.matmul(probes, cache.state.index_select(0, self.slots))
        seen += torch.matmul(scores.reshape(num_rows, num_heads, 2 * width, -1), deltas)
        return seen.view(num_rows, num_heads, 2, width, value_dim)


def _places(cache: DeltaCache, slots: Tensor, position: Tensor) -> Tensor:
    """position [B, t] -> places in the flat rings."""
    return position % cache.num_records + (slots * cache.num_records)[:, None]


def _select(stored: Tensor, places: Tensor, is_blank: Tensor) -> Tensor:
    """stored [S, R, ...], places [B, t] -> [B, t, ...], zero where blank."""
    found = stored.flatten(0, 1)[places]
    return found.masked_fill_(is_blank.view(*places.shape, *[1] * (stored.dim() - 2)), 0.0)
