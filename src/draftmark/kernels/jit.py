"""What kernels compiled by numba share: how they are called, bf16, exponentials.

A kernel is compiled to a C function of one argument, int64 words: a counter, the number of items,
then addresses, sizes and strides in elements. Its threads take items until none is left. They are
those of torch, of the same OpenMP team, so that no two pools of spinning threads fight for cores
and `torch.set_num_threads` rules both; and words cost a tenth of what numba takes for an array
argument. Compiled code is kept on disk by the age of the kernel's own file: after changing what
it calls in another one, remove `__pycache__`.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import numba
import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from torch import Tensor

# Not nnan and ninf: what is not finite must come through; nor arcp: an estimated 1 / inf is NaN.
_FASTMATH = {"reassoc", "contract", "nsz"}
_WORDS = types.CPointer(types.int64)

# Functions called by kernels. `exact` ones are not reordered.
function: Any = numba.njit(fastmath=_FASTMATH, error_model="numpy", cache=True)
exact: Any = numba.njit(fastmath={"contract", "nsz"}, error_model="numpy", cache=True)

_libraries = ctypes.CDLL(torch._C.__file__)
_in_team = _libraries.GOMP_parallel
_in_team.restype, _in_team.argtypes = None, (ctypes.c_void_p,) * 2 + (ctypes.c_uint,) * 2
_barrier = ctypes.cast(_libraries.GOMP_barrier, ctypes.c_void_p).value
assert _barrier is not None
BARRIER = _barrier  # for `wait`
# Bytes that come at once, and how far ahead of what is read they are worth asking for. On two cores
# 65 MB of weights came at 7.5 GB/s without asking, at 12 to 15 from 2 KiB to 16 KiB ahead.
LINE_BYTES, AHEAD_BYTES = 64, 4096


class Kernel:
    """A function of words: `take` the next item until it is words[1]. Compiled when first called,
    so that the functions it calls may follow it."""

    def __init__(self, body: Callable[[Any], None]) -> None:
        self._body = body

    def __call__(self, num_items: int, *words: int, is_shared: bool) -> None:
        """`is_shared`: by all of torch's threads. Worth it from about 10 us of work."""
        alone, address = self._entry
        block = array("q", (0, num_items, *words))
        threads = torch.get_num_threads() if is_shared else 1
        if threads == 1:
            alone(block.buffer_info()[0])
        else:
            _in_team(address, block.buffer_info()[0], threads, 0)

    @cached_property
    def _entry(self) -> tuple[Callable[..., None], int]:
        compiled: Any = numba.cfunc(
            types.void(_WORDS), fastmath=_FASTMATH, error_model="numpy", cache=True
        )(self._body)
        self._compiled = compiled  # holds the code
        return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(compiled.address), compiled.address


def is_half(x: Tensor) -> bool:
    """bf16, or else fp32: kernels take no other."""
    if x.dtype == torch.bfloat16:
        return True
    if x.dtype != torch.float32:
        raise TypeError(f"compiled kernels take bfloat16 and float32, not {x.dtype}")
    return False


def words_of(x: Tensor) -> tuple[int, int, int, int]:
    """x [M, H, D], D contiguous, or [M, H]: address, `is_half`, the strides of M and H."""
    first, second, *_ = x.stride()
    return x.data_ptr(), is_half(x), first, second


def ints_of(x: Tensor) -> int:
    """The address of x int64 [M]."""
    assert x.dtype == torch.int64 and x.is_contiguous(), (x.dtype, x.stride())
    return x.data_ptr()


@cache
def word_of(value: float) -> int:
    """For `number` in a kernel."""
    return int(np.float64(value).view(np.int64))


def _take_by(context: Any, words: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        counter = builder.gep(args[0], [args[1]])
        one = context.get_constant(types.int64, 1)
        return builder.atomic_rmw("add", counter, one, "monotonic")

    return types.int64(_WORDS, types.int64), generate


# Of words: the next item by the counter words[at], for a kernel of several parts.
take_by: Any = intrinsic(_take_by)


@function
def take(words: Any) -> Any:
    """The number of the next item."""
    return take_by(words, 0)


def _wait(context: Any, barrier: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        call = ir.FunctionType(ir.VoidType(), []).as_pointer()
        builder.call(builder.inttoptr(args[0], call), [])
        return context.get_dummy_value()

    return types.void(types.int64), generate


# Until all threads are here and see what each has written. All must come, on every way through a
# kernel. Of a word that is BARRIER: an address, which differs from run to run.
wait: Any = intrinsic(_wait)


def emit_prefetch(builder: Any, address: Any) -> None:
    """For intrinsics: have the cache line at `address`, an int64, brought near; there need be none.

    A core by itself asks for too little at once to read weights at the memory's speed.
    """
    line, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [line, word, word, word])
    call = builder.module.declare_intrinsic("llvm.prefetch", (line,), kind)
    to_read, near, is_data = ir.Constant(word, 0), ir.Constant(word, 3), ir.Constant(word, 1)
    builder.call(call, [builder.inttoptr(address, line), to_read, near, is_data])


def _prefetch(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        emit_prefetch(builder, args[0])
        return context.get_dummy_value()

    return types.void(types.int64), generate


_prefetch_line: Any = intrinsic(_prefetch)


@function
def prefetch(address: Any, num_bytes: Any) -> None:
    for line in range(0, num_bytes, LINE_BYTES):
        _prefetch_line(address + line)


def _address_of(context: Any, pointer: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ptrtoint(args[0], ir.IntType(64))

    return types.int64(pointer), generate


# Of a pointer.
address_of: Any = intrinsic(_address_of)


def _pointer_to(item: Any) -> Any:
    def at(context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(item)(types.int64), generate

    return intrinsic(at)


def _bits_as(source: Any, target: Any) -> Any:
    def cast(context: Any, bits: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], context.get_value_type(target))

        return target(source), generate

    return intrinsic(cast)


# Pointers from addresses: floats_at(words[2])[i].
floats_at, doubles_at, halves_at, ints_at, int32s_at, bytes_at = (
    _pointer_to(item)
    for item in (types.float32, types.float64, types.uint16, types.int64, types.int32, types.uint8)
)
float_of, bits_of = (
    _bits_as(types.uint32, types.float32),
    _bits_as(types.float32, types.uint32),
)
number = _bits_as(types.int64, types.float64)


@function
def from_half(bits: Any) -> Any:
    """bf16, a uint16, to float32."""
    return float_of(numba.uint32(bits) << numba.uint32(16))


@function
def to_half(value: Any) -> Any:
    """float32 to bf16: to the nearest, to even in the middle. NaN stays NaN."""
    bits = bits_of(value)
    if (bits & numba.uint32(0x7FFFFFFF)) > numba.uint32(0x7F800000):
        return numba.uint16(0x7FC0)
    odd = (bits >> numba.uint32(16)) & numba.uint32(1)
    return numba.uint16((bits + numba.uint32(0x7FFF) + odd) >> numba.uint32(16))


@function
def rows(words: Any, at: Any) -> Any:
    """What `words_of` gave from words[at] on."""
    return words[at], words[at + 1], words[at + 2], words[at + 3]


@function
def read(x: Any, m: Any, h: Any) -> Any:
    """x[m, h] of rows, in float32."""
    address, is_half, first, second = x
    if is_half:
        return from_half(halves_at(address)[m * first + h * second])
    return floats_at(address)[m * first + h * second]


@function
def write(out: Any, m: Any, h: Any, value: Any) -> None:
    """out[m, h] of rows = value, a float32."""
    address, is_half, first, second = out
    if is_half:
        halves_at(address)[m * first + h * second] = to_half(value)
    else:
        floats_at(address)[m * first + h * second] = value


@function
def widen(out: Any, x: Any, m: Any, h: Any, count: Any) -> None:
    """out, a float32 pointer, = x[m, h] of rows."""
    address, is_half, first, second = x
    if is_half:
        halves = halves_at(address + 2 * (m * first + h * second))
        for i in range(count):
            out[i] = from_half(halves[i])
    else:
        floats = floats_at(address + 4 * (m * first + h * second))
        for i in range(count):
            out[i] = floats[i]


@function
def narrow(out: Any, m: Any, h: Any, x: Any, count: Any) -> None:
    """out[m, h] of rows = x, a float32 pointer."""
    address, is_half, first, second = out
    if is_half:
        halves = halves_at(address + 2 * (m * first + h * second))
        for i in range(count):
            halves[i] = to_half(x[i])
    else:
        floats = floats_at(address + 4 * (m * first + h * second))
        for i in range(count):
            floats[i] = x[i]


@function
def round_as(like: Any, x: Any, count: Any) -> None:
    """x, a float32 pointer, to the dtype of rows, but still as float32."""
    if like[1]:
        for i in range(count):
            x[i] = from_half(to_half(x[i]))


@exact
def exp(x: Any) -> Any:
    """e^x in float32, within 2 units in the last place where the result is normal, 0 below. Loops
    over it become vector code."""
    one, round_to = numba.float32(1.0), numba.float32(12582912.0)
    shifted = x * numba.float32(1.4426950408889634) + round_to
    power = shifted - round_to
    r = x - power * numba.float32(0.693145751953125)
    r = r - power * numba.float32(1.42860677e-06)
    y = numba.float32(1.9875691500e-4)
    y = y * r + numba.float32(1.3981999507e-3)
    y = y * r + numba.float32(8.3334519073e-3)
    y = y * r + numba.float32(4.1665795894e-2)
    y = y * r + numba.float32(1.6666665459e-1)
    y = y * r + numba.float32(5.0000001201e-1)
    y = y * (r * r) + r + one
    # In two steps: 2^128 has no float32.
    steps = bits_of(shifted) - bits_of(round_to)
    half = numba.uint32(numba.int32(steps) >> numba.int32(1))
    low, high = (
        float_of((half + numba.uint32(127)) << numba.uint32(23)),
        float_of((steps - half + numba.uint32(127)) << numba.uint32(23)),
    )
    y = y * low * high
    y = numba.float32(0.0) if x < numba.float32(-87.3) else y
    return numba.float32(np.inf) if x > numba.float32(88.72284) else y


@exact
def sigmoid(x: Any) -> Any:
    one = numba.float32(1.0)
    return one / (one + exp(-x))
