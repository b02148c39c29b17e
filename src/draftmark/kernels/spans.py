"""A run of prompt tokens of one slot, and the places of consecutive positions in a ring.

Position p of a ring of depth D lies at p % D, so a run of at most D positions is one or two slices:
no index tensor, and the host knows all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Tokens offset .. offset + count - 1 sit at positions from `start` of `slot`."""

    offset: int
    count: int
    start: int
    slot: int

    @property
    def tokens(self) -> slice:
        return slice(self.offset, self.offset + self.count)

    @property
    def end(self) -> int:
        return self.start + self.count


def words_of_spans(spans: Sequence[Span]) -> Tensor:
    """[num_spans, 4] int64, for compiled kernels: offset, count, start and slot."""
    given = [(span.offset, span.count, span.start, span.slot) for span in spans]
    return torch.tensor(given, dtype=torch.int64)


def ring_pieces(first: int, count: int, depth: int) -> list[tuple[int, int, int]]:
    """(place in the ring, index in the run, length) of the at most two pieces that `count`
    positions from `first` lie in."""
    assert count <= depth, (count, depth)
    place = first % depth
    before = min(count, depth - place)
    pieces = [(place, 0, before), (0, before, count - before)]
    return [piece for piece in pieces if piece[2]]


def read_ring(ring: Tensor, first: int, count: int) -> Tensor:
    """ring [D, ...] -> [count, ...], count > 0; a view where the positions do not wrap."""
    pieces = [ring.narrow(0, p, n) for p, _, n in ring_pieces(first, count, ring.shape[0])]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def write_ring(ring: Tensor, first: int, values: Tensor) -> None:
    """values [count, ...] to the places of positions from `first`."""
    for place, index, count in ring_pieces(first, values.shape[0], ring.shape[0]):
        ring.narrow(0, place, count).copy_(values.narrow(0, index, count))
