"""The sampler with compiled loops for what greedy rows need; whoever needs more is torch's."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from draftmark.kernels import jit
from draftmark.kernels.sample import torch as plain
from draftmark.kernels.sample.tables import SampleTables

_BLOCK = 256
# From so many numbers on, one core is slower than waking the others.
_SHARED = 1 << 15


def sample(
    logits: Tensor,
    *,
    slots: Tensor,
    position: Tensor,
    tables: SampleTables,
    flags: tuple[int, ...],
    window: Tensor | None = None,
) -> Tensor:
    """See `kernels.sample.sample`."""
    if not any(flags) and _is_plain(logits):
        return argmax(logits)
    return plain.sample(
        logits, slots=slots, position=position, tables=tables, flags=flags, window=window
    )


def argmax(logits: Tensor) -> Tensor:
    """Index of the largest of each row [R, V], the lowest among equals. NaN is above all or
    below."""
    found = torch.empty(len(logits), dtype=torch.int64)
    _argmax(*_words_of(logits), found.data_ptr(), is_shared=logits.numel() > _SHARED)
    return found


def is_finite(logits: Tensor) -> Tensor:
    """See `kernels.sample.is_finite`."""
    if not _is_plain(logits):
        return plain.is_finite(logits)
    found = torch.empty(len(logits), dtype=torch.bool)
    _is_finite(*_words_of(logits), found.data_ptr(), is_shared=logits.numel() > _SHARED)
    return found


def _is_plain(logits: Tensor) -> bool:
    return logits.dtype == torch.float32 and logits.is_contiguous()


def _words_of(logits: Tensor) -> tuple[int, int, int]:
    return *logits.shape, logits.data_ptr()


@jit.Kernel
def _argmax(words: Any) -> None:
    """An item is a row: the first block that has its largest number, then the first place there."""
    vocab, found = words[2], jit.ints_at(words[4])
    row = jit.take(words)
    while row < words[1]:
        at = words[3] + 4 * row * vocab
        best, block = np.iinfo(np.int32).min, 0
        for first in range(0, vocab, _BLOCK):
            top = _largest(at + 4 * first, min(_BLOCK, vocab - first))
            if top > best:
                best, block = top, first
        bits, place = jit.int32s_at(at), block
        for candidate in range(block, min(block + _BLOCK, vocab)):
            if _order(bits[candidate]) == best:
                place = candidate
                break
        found[row] = place
        row = jit.take(words)


@jit.function
def _largest(address: Any, count: Any) -> Any:
    """Of float32 numbers, as integers of the same order, whose maximum becomes vector code."""
    bits, top = jit.int32s_at(address), np.iinfo(np.int32).min
    for i in range(count):
        top = max(top, _order(bits[i]))
    return top


@jit.function
def _order(bits: Any) -> Any:
    """A float's bits to an integer of the same order; the two zeros are one."""
    signed = numba.int32(bits)
    flipped = signed ^ ((signed >> numba.int32(31)) & numba.int32(0x7FFFFFFF))
    return numba.int32(0) if flipped == numba.int32(-1) else flipped


@jit.Kernel
def _is_finite(words: Any) -> None:
    """An item is a row: x times 0 is 0 unless x is not finite."""
    vocab, found = words[2], words[4]
    row = jit.take(words)
    while row < words[1]:
        logits = jit.floats_at(words[3] + 4 * row * vocab)
        total = numba.float32(0.0)
        for at in range(vocab):
            total += logits[at] * numba.float32(0.0)
        jit.bytes_at(found)[row] = numba.uint8(total == numba.float32(0.0))
        row = jit.take(words)
