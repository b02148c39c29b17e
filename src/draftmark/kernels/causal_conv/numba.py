"""causal_conv's verify rows, compiled: some channels of a row at a time, tap by tap. Prompts are
`torch.py`'s."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from draftmark.kernels import jit

_BLOCK = 512  # channels
# From so many numbers on, one core is slower than waking the others.
_SHARED = 1 << 13


def verify(
    x: Tensor, weight: Tensor, ring: Tensor, slots: Tensor, lengths: Tensor, width: int
) -> Tensor:
    x = x if x.stride(1) == 1 else x.contiguous()
    weight = weight if weight.stride(0) == 1 else weight.t().contiguous().t()
    y = torch.empty_like(x)
    depth, channels = ring.shape[1:]
    _verify(
        len(slots) * -(-channels // _BLOCK),
        *(channels, weight.shape[1], width, depth, jit.ints_of(slots), jit.ints_of(lengths)),
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
    channels, taps, width, depth = words[2], words[3], words[4], words[5]
    slots, lengths = jit.ints_at(words[6]), jit.ints_at(words[7])
    x, y = jit.rows(words, 8), jit.rows(words, 12)
    ring, by_tap = jit.rows(words, 16), jit.rows(words, 20)
    num_blocks = -(-channels // _BLOCK)
    scratch = np.empty(3 * _BLOCK, np.float32)
    item = jit.take(words)
    while item < words[1]:
        row, first = item // num_blocks, item % num_blocks * _BLOCK
        count = min(_BLOCK, channels - first)
        tokens = Tokens(row * width, width, slots[row] * depth, depth, lengths[row])
        for j in range(width):
            convolve(x, by_tap, ring, tokens, j, taps, first, count, scratch.ctypes.data)
            jit.narrow(y, tokens.first + j, first, jit.floats_at(scratch.ctypes.data), count)
        keep(x, ring, tokens, first, count, scratch.ctypes.data)
        item = jit.take(words)


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
