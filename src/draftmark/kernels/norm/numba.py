"""RMSNorm compiled: a row at a time, widened once."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from draftmark.kernels import jit

# From so many numbers on, one core is slower than waking the others.
_SHARED = 1 << 14


def prepare(weight: Tensor) -> Tensor:
    return weight.contiguous()


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    rows = _rows(x)
    num_rows, num_heads, size = _sizes(rows)
    y, scale = torch.empty_like(rows), torch.empty(num_rows, num_heads)
    _plain(
        *(num_rows, num_heads, size, *jit.words_of(rows), *jit.words_of(y)),
        *(weight.data_ptr(), jit.is_half(weight), scale.data_ptr(), jit.word_of(eps)),
        is_shared=x.numel() >= _SHARED,
    )
    if x.dim() == 2:
        return y, scale
    return y.view(x.shape), scale.view(*x.shape[:-1], 1)


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float, activation: str) -> Tensor:
    rows, gates = _rows(x), _rows(gate)
    y = torch.empty_like(gates)
    _gated(
        *(*_sizes(rows), *jit.words_of(rows), *jit.words_of(gates), *jit.words_of(y)),
        *(weight.data_ptr(), jit.is_half(weight), jit.word_of(eps), activation == "silu"),
        is_shared=x.numel() >= _SHARED,
    )
    return y if rows is x else y.view(gate.shape)


def _rows(x: Tensor) -> Tensor:
    """[M, D] or [M, H, D], D contiguous."""
    if x.dim() not in (2, 3):
        x = x.reshape(-1, x.shape[-1])
    return x if x.stride(-1) == 1 else x.contiguous()


def _sizes(rows: Tensor) -> tuple[int, int, int]:
    """M, H, D."""
    num_rows, *heads, size = rows.shape
    return num_rows, heads[0] if heads else 1, size


@jit.Kernel
def _plain(words: Any) -> None:
    """An item is all H rows of one of M."""
    num_heads, size, eps = words[2], words[3], jit.number(words[15])
    x, y, weight = jit.rows(words, 4), jit.rows(words, 8), (words[12], words[13], 0, 0)
    scales = jit.floats_at(words[14])
    scratch = np.empty(2 * size, np.float32)
    item = jit.take(words)
    while item < words[1]:
        for head in range(num_heads):
            scale = normed(x, weight, item, head, size, eps, scratch)
            jit.narrow(y, item, head, jit.floats_at(scratch.ctypes.data), size)
            scales[item * num_heads + head] = scale
        item = jit.take(words)


@jit.Kernel
def _gated(words: Any) -> None:
    """An item is all H rows of one of M."""
    num_heads, size, eps = words[2], words[3], jit.number(words[18])
    x, gate, y = jit.rows(words, 4), jit.rows(words, 8), jit.rows(words, 12)
    scratch = np.empty(2 * size, np.float32)
    item = jit.take(words)
    while item < words[1]:
        for head in range(num_heads):
            normed(x, (words[16], words[17], 0, 0), item, head, size, eps, scratch)
            opened(y, gate, item, head, size, words[19], scratch)
        item = jit.take(words)


@jit.function
def normed(x: Any, weight: Any, item: Any, head: Any, size: Any, eps: Any, scratch: Any) -> Any:
    """The scale of a row; the row normed at the head of `scratch`."""
    row = jit.floats_at(scratch.ctypes.data)
    weights = jit.floats_at(scratch.ctypes.data + 4 * size)
    jit.widen(row, x, item, head, size)
    jit.widen(weights, weight, 0, 0, size)
    squares = numba.float32(0.0)
    for d in range(size):
        squares += row[d] * row[d]
    mean = numba.float32(squares / numba.float32(size)) + numba.float32(eps)
    scale = numba.float32(1.0) / numba.float32(math.sqrt(mean))
    for d in range(size):
        row[d] = row[d] * scale * weights[d]
    return scale


@jit.function
def opened(y: Any, gate: Any, item: Any, head: Any, size: Any, is_silu: Any, scratch: Any) -> None:
    """The row at the head of `scratch`, rounded to the gate's dtype, times the gate's opening."""
    row = jit.floats_at(scratch.ctypes.data)
    gates = jit.floats_at(scratch.ctypes.data + 4 * size)
    jit.widen(gates, gate, item, head, size)
    jit.narrow(y, item, head, row, size)
    jit.widen(row, y, item, head, size)
    if is_silu:
        for d in range(size):
            row[d] *= gates[d]
    for d in range(size):
        row[d] *= jit.sigmoid(gates[d])
    jit.narrow(y, item, head, row, size)
