"""Products of bf16 by AMX in compiled kernels, for CPUs that have it: tiles of 16 rows of 64 bytes.

    C [32, 32] float32  +=  A [32, K] B [K, 32],   32 inputs at a time

A and C have their second 16 rows, B and C their second 16 columns only where they are needed.

Rows of a plain weight or of inputs are tiles of A as they lie; B has what `pack` makes of rows, or
oneDNN's strips. Sums are in float32; numbers too small to be normal count as zero. Columns of B and
rows of A do not mix, so that what is not finite stays where it is. A thread opens the tiles before
it uses them and closes them after, since oneDNN has its own use for them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
import torch
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from draftmark.kernels import jit

ROWS, DEPTH = 16, 32  # of a tile of A; as many columns of a tile of B as rows
SIDE = 2 * ROWS  # of C
_LINE_BYTES = 64
_BYTE, _LONG = ir.IntType(8), ir.IntType(64)
_ADDRESS = _BYTE.as_pointer()
# Tiles 0 to 3 are C row by row, 4 and 5 A, 6 and 7 B.
_A, _B = 4, 6


@cache
def has_tiles() -> bool:
    """Whether this CPU has them and this process may use them: Linux wants to be asked."""
    return bool(binding.get_host_cpu_features().get("amx-bf16")) and bool(torch.cpu._init_amx())


def _emit(builder: Any, name: str, *args: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [arg.type for arg in args])
    called = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    builder.call(called, args)


def _tile(number: int) -> Any:
    return ir.Constant(_BYTE, number)


def _configure(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _emit(builder, "llvm.x86.ldtilecfg", builder.inttoptr(args[0], _ADDRESS))
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _release(context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _emit(builder, "llvm.x86.tilerelease")
        return context.get_dummy_value()

    return types.void(), generate


_load_config: Any = intrinsic(_configure)
close: Any = intrinsic(_release)


@jit.function
def open_all() -> None:
    """All eight tiles of this thread are 16 rows of 64 bytes."""
    config = np.zeros(8, np.int64)
    config[0] = 1  # the palette
    config[2] = config[3] = 0x0040004000400040
    config[6] = 0x1010101010101010
    _load_config(config.ctypes.data)


def _clear(context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        for number in range(4):
            _emit(builder, "llvm.x86.tilezero", _tile(number))
        return context.get_dummy_value()

    return types.void(), generate


def _store(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row_bytes = 2 * _LINE_BYTES
        for number in range(4):
            first = number // 2 * ROWS * row_bytes + number % 2 * _LINE_BYTES
            where = builder.inttoptr(builder.add(args[0], ir.Constant(_LONG, first)), _ADDRESS)
            stride = ir.Constant(_LONG, row_bytes)
            _emit(builder, "llvm.x86.tilestored64", _tile(number), where, stride)
        return context.get_dummy_value()

    return types.void(types.int64), generate


# All of C to zero, and to an address as one matrix [SIDE, SIDE].
clear: Any = intrinsic(_clear)
store: Any = intrinsic(_store)


def _add_product(num_left: int, num_right: int) -> Any:
    """(addresses of both tiles of A, bytes between their rows, the same of B)"""

    def add(context: Any, a0: Any, a1: Any, a_step: Any, b0: Any, b1: Any, b_step: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            lefts, a_step, rights, b_step = args[:2], args[2], args[3:5], args[5]
            for first, own, step in (
                (_A, lefts[:num_left], a_step),
                (_B, rights[:num_right], b_step),
            ):
                for i, address in enumerate(own):
                    where = builder.inttoptr(address, _ADDRESS)
                    _emit(builder, "llvm.x86.tileloadd64", _tile(first + i), where, step)
            for i in range(num_left):
                for j in range(num_right):
                    numbers = (2 * i + j, _A + i, _B + j)
                    _emit(builder, "llvm.x86.tdpbf16ps", *map(_tile, numbers))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), generate

    return intrinsic(add)


_add_1x2, _add_2x1, _add_2x2 = (_add_product(*shape) for shape in ((1, 2), (2, 1), (2, 2)))


@jit.function
def add(a0: Any, a1: Any, a_step: Any, b0: Any, b1: Any, b_step: Any) -> None:
    """C += A B of addresses and bytes between rows; a1 or b1 is 0 where there is no second tile."""
    if a1 == 0:
        _add_1x2(a0, a1, a_step, b0, b1, b_step)
    elif b1 == 0:
        _add_2x1(a0, a1, a_step, b0, b1, b_step)
    else:
        _add_2x2(a0, a1, a_step, b0, b1, b_step)


@jit.function
def multiply(
    a0: Any, a1: Any, a_step: Any, ahead: Any, b: Any, num_columns: Any, depth: Any, out: Any
) -> None:
    """out [SIDE, SIDE] = the rows of bf16 at a0 and a1, `a_step` bytes apart, times what `pack` put
    at b. Has rows brought near that are `ahead` bytes after these. depth >= DEPTH; where it is no
    multiple of it, the last block of A is its last DEPTH columns, those among them that came before
    meet zeros in b, of which there are `gap(depth)` lines."""
    second = packed_bytes(depth) // 2 if num_columns > ROWS else 0
    lines = ROWS * _LINE_BYTES
    clear()
    for k in range(0, depth, DEPTH):
        done = k // DEPTH * lines
        jit.prefetch(a0 + ahead + done, lines)
        jit.prefetch(a1 + ahead + done, lines)
        at, left = b + _LINE_BYTES // 2 * k, 2 * min(k, depth - DEPTH)
        add(a0 + left, a1 + left, a_step, at, 0 if second == 0 else at + second, _LINE_BYTES)
    store(out)


@jit.function
def gap(depth: Any) -> Any:
    """What `depth` lacks to whole blocks."""
    return (DEPTH - depth % DEPTH) % DEPTH


@jit.function
def packed_bytes(depth: Any) -> Any:
    """What `pack` makes of 32 rows."""
    return _LINE_BYTES * (depth + gap(depth))


@jit.function
def pack(out: Any, x: Any, tokens: Any, count: Any, depth: Any) -> None:
    """out, an address, = up to 32 of x's rows as the columns of B, filled up with zeros to 16 or
    32: `tokens` are their numbers. x, of bf16, as `jit.rows` gives it, `depth` even."""
    for first in range(0, count, ROWS):
        words = jit.int32s_at(out + _LINE_BYTES // 2 * depth * (first // ROWS))
        for column in range(ROWS):
            if first + column < count:
                line = jit.int32s_at(x[0] + 2 * tokens[first + column] * x[2])
                for pair in range(depth // 2):
                    words[ROWS * pair + column] = line[pair]
            else:
                for pair in range(depth // 2):
                    words[ROWS * pair + column] = numba.int32(0)
