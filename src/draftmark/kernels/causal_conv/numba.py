"""causal_conv's verify rows, compiled: some channels of a row at a time, tap by tap. Prompts are
`torch.py`'s."""

from __future__ import annotations

from typing import Any

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
        for j in range(width):
            token = row * width + j
            place, position = (slots[row], depth), lengths[row] + j
            _convolve(x, by_tap, ring, token, place, position, taps, first, count, scratch)
            jit.narrow(y, token, first, jit.floats_at(scratch.ctypes.data), count)
        item = jit.take(words)


@jit.function
def _convolve(
    x: Any,
    by_tap: Any,
    ring: Any,
    token: Any,
    place: Any,
    position: Any,
    taps: Any,
    first: Any,
    count: Any,
    scratch: Any,
) -> None:
    """`count` channels of a token from `first` on, whose inputs are kept before they are used; at
    the head of `scratch`. place: its slot and the ring's depth."""
    slot, depth = place
    total = jit.floats_at(scratch.ctypes.data)
    inputs = jit.floats_at(scratch.ctypes.data + 4 * _BLOCK)
    weights = jit.floats_at(scratch.ctypes.data + 8 * _BLOCK)
    jit.widen(inputs, x, token, first, count)
    jit.narrow(ring, slot * depth + position % depth, first, inputs, count)
    for c in range(count):
        total[c] = numba.float32(0.0)
    for tap in range(taps):
        earlier = position - (taps - 1) + tap
        if earlier >= 0:
            jit.widen(inputs, ring, slot * depth + earlier % depth, first, count)
            jit.widen(weights, by_tap, tap, first, count)
            for c in range(count):
                total[c] += weights[c] * inputs[c]
    for c in range(count):
        total[c] *= jit.sigmoid(total[c])
