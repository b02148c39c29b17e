"""causal_conv compiled: some channels of a row or of a span at a time, tap by tap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from draftmark.kernels import jit
from draftmark.kernels.spans import Span, words_of_spans

_BLOCK = 512  # channels
# From so many numbers on, one core is slower than waking the others.
_SHARED = 1 << 13


def prefill(x: Tensor, weight: Tensor, ring: Tensor, spans: Sequence[Span]) -> Tensor:
    given = words_of_spans(spans)
    return _run(_prefill, x, weight, ring, (len(spans), 0, jit.ints_of(given), 0))


def verify(
    x: Tensor, weight: Tensor, ring: Tensor, slots: Tensor, lengths: Tensor, width: int
) -> Tensor:
    rows = (len(slots), width, jit.ints_of(slots), jit.ints_of(lengths))
    return _run(_verify, x, weight, ring, rows)


def _run(
    kernel: jit.Kernel, x: Tensor, weight: Tensor, ring: Tensor, rows: tuple[int, int, int, int]
) -> Tensor:
    """`rows`: how many, their width, and two addresses."""
    x = x if x.stride(1) == 1 else x.contiguous()
    weight = weight if weight.stride(0) == 1 else weight.t().contiguous().t()
    y = torch.empty_like(x)
    depth, channels = ring.shape[1:]
    num_rows, width, *addresses = rows
    kernel(
        num_rows * -(-channels // _BLOCK),
        *(channels, weight.shape[1], width, depth, *addresses),
        *jit.words_of(x),
        *jit.words_of(y),
        *(ring.data_ptr(), jit.is_half(ring), channels, 1),
        *(weight.data_ptr(), jit.is_half(weight), weight.stride(1), 1),
        is_shared=x.numel() >= _SHARED,
    )
    return y


@jit.Kernel
def _verify(words: Any) -> None:
    """An item is a block of channels of a row."""
    width, depth = words[4], words[5]
    slots, lengths = jit.ints_at(words[6]), jit.ints_at(words[7])
    num_blocks = -(-words[2] // _BLOCK)
    scratch = np.empty(3 * _BLOCK, np.float32)
    item = jit.take(words)
    while item < words[1]:
        row = item // num_blocks
        tokens = Tokens(row * width, width, slots[row] * depth, depth, lengths[row])
        _run_block(words, tokens, width, item % num_blocks * _BLOCK, scratch)
        item = jit.take(words)


@jit.Kernel
def _prefill(words: Any) -> None:
    """An item is a block of channels of a span."""
    taps, depth = words[3], words[5]
    num_blocks = -(-words[2] // _BLOCK)
    scratch = np.empty(3 * _BLOCK, np.float32)
    item = jit.take(words)
    while item < words[1]:
        span = jit.ints_at(words[6] + 32 * (item // num_blocks))
        tokens = Tokens(span[0], span[1], span[3] * depth, depth, span[2])
        _run_block(words, tokens, min(taps - 1, span[1]), item % num_blocks * _BLOCK, scratch)
        item = jit.take(words)


@jit.function
def _run_block(words: Any, tokens: Any, num_kept: Any, first: Any, scratch: Any) -> None:
    """The channels from `first` on; the last `num_kept` tokens' go into the ring."""
    x, y, ring, by_tap = (
        jit.rows(words, 8),
        jit.rows(words, 12),
        jit.rows(words, 16),
        jit.rows(words, 20),
    )
    count, room = min(_BLOCK, words[2] - first), scratch.ctypes.data
    for j in range(tokens.width):
        convolve(x, by_tap, ring, tokens, j, words[3], first, count, room)
        jit.narrow(y, tokens.first + j, first, jit.floats_at(room), count)
    before = tokens.width - num_kept
    last = Tokens(
        tokens.first + before, num_kept, tokens.ring, tokens.depth, tokens.length + before
    )
    keep(x, ring, last, first, count, room)


class Tokens(NamedTuple):
    """The new tokens of a row: the first one's number, how many, where their slot's ring begins in
    all rings, its depth, and the first one's position."""

    first: int
    width: int
    ring: int
    depth: int
    length: int


@jit.function
def convolve(
    x: Any,
    by_tap: Any,
    ring: Any,
    tokens: Any,
    j: Any,
    taps: Any,
    first: Any,
    count: Any,
    scratch: Any,
) -> None:
    """`count` channels of new token j from `first` on, at the address `scratch`, which has room for
    three times as many. Of the ring only what is older than the new tokens is read."""
    total = jit.floats_at(scratch)
    inputs, weights = jit.floats_at(scratch + 4 * count), jit.floats_at(scratch + 8 * count)
    for c in range(count):
        total[c] = numba.float32(0.0)
    for tap in range(taps):
        since = j - (taps - 1) + tap
        position = tokens.length + since
        if position >= 0:
            if since >= 0:
                jit.widen(inputs, x, tokens.first + since, first, count)
            else:
                place = tokens.ring + position % tokens.depth
                jit.widen(inputs, ring, place, first, count)
            jit.widen(weights, by_tap, tap, first, count)
            for c in range(count):
                total[c] += weights[c] * inputs[c]
    for c in range(count):
        total[c] *= jit.sigmoid(total[c])


@jit.function
def keep(x: Any, ring: Any, tokens: Any, first: Any, count: Any, scratch: Any) -> None:
    """Those channels of all new tokens, into the ring."""
    inputs = jit.floats_at(scratch)
    for j in range(tokens.width):
        jit.widen(inputs, x, tokens.first + j, first, count)
        place = tokens.ring + (tokens.length + j) % tokens.depth
        jit.narrow(ring, place, first, inputs, count)
