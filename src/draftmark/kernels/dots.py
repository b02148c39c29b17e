"""Dot products in compiled kernels: weights in bf16 or fp32, rows in fp32, by their offsets.

Two weights at once share what is read of a row, four rows what is read and widened of the weights:
four take twice as long as one, so that three are worth filling up.
"""

from __future__ import annotations

from typing import Any

import numba
from numba import types
from numba.extending import overload

from draftmark.kernels.jit import (
    AHEAD_BYTES,
    address_of,
    from_half,
    function,
    prefetch,
    sigmoid,
    to_half,
)

FILLED_UP = 3
_ZERO = numba.float32(0.0)


def wide(value: Any) -> Any:
    """In kernels: a weight as a float32."""
    raise NotImplementedError


def rounded(value: Any, like: Any) -> Any:
    """In kernels: a float32 to what the pointer `like` points at, but still as a float32."""
    raise NotImplementedError


def item_bytes(pointer: Any) -> Any:
    """In kernels: of what a pointer points at."""
    raise NotImplementedError


@overload(wide, inline="always", strict=False)
def _wide(value: Any) -> Any:
    if isinstance(value, types.Float):
        return lambda value: value
    return lambda value: from_half(value)


@overload(rounded, inline="always", strict=False)
def _rounded(value: Any, like: Any) -> Any:
    if isinstance(like.dtype, types.Float):
        return lambda value, like: value
    return lambda value, like: from_half(to_half(value))


@overload(item_bytes, inline="always", strict=False)
def _item_bytes(pointer: Any) -> Any:
    if isinstance(pointer.dtype, types.Float):
        return lambda pointer: 4
    return lambda pointer: 2


@function
def ask_ahead(weights: Any, first: Any, count: Any) -> None:
    """Have weights brought near that follow `count` ones from `first` on, which are about to be
    read, at a distance."""
    size = item_bytes(weights)
    prefetch(address_of(weights) + size * first + AHEAD_BYTES, size * count)


@function
def silu_mul(gate: Any, up: Any) -> Any:
    return gate * sigmoid(gate) * up


@function
def one(weights: Any, a: Any, rows: Any, x: Any, count: Any) -> Any:
    """a x."""
    total = _ZERO
    for k in range(count):
        total += wide(weights[a + k]) * rows[x + k]
    return total


@function
def pair(weights: Any, a: Any, b: Any, rows: Any, x: Any, count: Any) -> Any:
    """a x, b x."""
    ax = bx = _ZERO
    for k in range(count):
        value = rows[x + k]
        ax += wide(weights[a + k]) * value
        bx += wide(weights[b + k]) * value
    return ax, bx


@function
def pair_of_four(
    weights: Any, a: Any, b: Any, rows: Any, x: Any, y: Any, z: Any, w: Any, count: Any
) -> Any:
    """(a x, a y, a z, a w), (b x, b y, b z, b w)."""
    ax = ay = az = aw = bx = by = bz = bw = _ZERO
    for k in range(count):
        left, right = wide(weights[a + k]), wide(weights[b + k])
        ax += left * rows[x + k]
        ay += left * rows[y + k]
        az += left * rows[z + k]
        aw += left * rows[w + k]
        bx += right * rows[x + k]
        by += right * rows[y + k]
        bz += right * rows[z + k]
        bw += right * rows[w + k]
    return (ax, ay, az, aw), (bx, by, bz, bw)
