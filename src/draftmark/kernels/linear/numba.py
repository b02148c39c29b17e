"""linear and gated_linear compiled, for few rows, on weights in oneDNN's blocked layout.

A call of oneDNN takes 25 us besides the product, and gate and up are two. A kernel here reads the
same weights, a strip of outputs at a time (see `strips`), and adds bias, residual or gate before
rounding; of a few rows it sums in plain float32, of some more by AMX (see `tiles`). Many rows, some
more of a gated product, and weights that have no strips are oneDNN's; a head's plain weight is read
as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from torch import Tensor

from draftmark.kernels import dots, jit, tiles
from draftmark.kernels.linear import onednn
from draftmark.kernels.linear.strips import WIDTH, Strips, prepare

# On two cores with AMX a decode step of SmolLM2-135M takes 28.5 ms, with oneDNN alone 35; of 4 rows
# 35 and 37.
MOST_ROWS = 4
# Of 8, 16, 32 and 64 rows [3088, 512] takes 170, 176, 215 and 321 us by tiles, by oneDNN 198, 184,
# 228 and 244; a head [4096, 512] 216, 231, 224 and 333, by oneDNN, which rounds it, 672 to 1519.
_MOST_TILED_ROWS, _MOST_TILED_HEAD_ROWS = 16, 64
# From so many weights on, one core is slower than waking the others.
_SHARED_WEIGHTS = 1 << 16
# Of an item of a plain weight.
_OUTPUTS = 256
_NONE = (0, 0, 0, 0)


def prepare_gated(weight: Tensor, bias: Tensor | None) -> tuple[Strips | Tensor, ...]:
    """Two weights, then two biases if there are any."""
    weights = tuple(prepare(half.contiguous()) for half in weight.chunk(2))
    return weights if bias is None else weights + tuple(b.contiguous() for b in bias.chunk(2))


def prepare_wide(weight: Tensor, is_kept: bool) -> tuple[Strips | Tensor, ...]:
    """As `onednn` does."""
    return (weight, prepare(weight)) if is_kept else (weight,)


def linear(x: Tensor, weight: Strips, bias: Tensor | None, residual: Tensor | None) -> Tensor:
    most = _MOST_TILED_ROWS if tiles.has_tiles() else MOST_ROWS
    if len(x) > most or weight.address == 0:
        return onednn.linear(x, weight.packed, bias, residual)
    return _product(x, weight, None, (bias, None), residual, x.dtype)


def wide_linear(x: Tensor, prepared: tuple[Any, ...]) -> Tensor:
    """In float32; oneDNN's binding rounds."""
    weight, *strips = prepared
    if strips:
        most = most_head_rows() if strips[0].address != 0 else 0
    else:
        fills_tiles = len(weight) >= tiles.SIDE and weight.shape[1] % tiles.DEPTH == 0
        most = most_head_rows() if fills_tiles else MOST_ROWS
    if len(x) > most:
        return onednn.wide_linear(x, (weight, *(own.packed for own in strips)))
    if strips:
        return _product(x, strips[0], None, (None, None), None, torch.float32)
    y = torch.empty(len(x), len(weight), dtype=torch.float32)
    assert jit.is_half(weight) and weight.is_contiguous()
    kernel = _plain if len(x) <= MOST_ROWS else _tiled_plain
    kernel(
        -(-len(weight) // _OUTPUTS),
        *(len(x), *weight.shape, weight.data_ptr(), y.data_ptr(), *jit.words_of(x)),
        is_shared=weight.numel() >= _SHARED_WEIGHTS,
    )
    return y


def gated_linear(x: Tensor, prepared: tuple[Any, ...]) -> Tensor:
    gate, up, *biases = prepared
    if len(x) > MOST_ROWS or gate.address == 0:
        return onednn.gated_linear(x, (gate.packed, up.packed, *biases))
    gate_bias, up_bias = biases if biases else (None, None)
    return _product(x, gate, up, (gate_bias, up_bias), None, x.dtype)


def most_head_rows() -> int:
    """That the kernels here take of a head."""
    return _MOST_TILED_HEAD_ROWS if tiles.has_tiles() else MOST_ROWS


def _product(
    x: Tensor,
    weight: Strips,
    up: Strips | None,
    biases: tuple[Tensor | None, Tensor | None],
    residual: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """Of `weight`, or with `up` the gated one."""
    y = torch.empty(len(x), weight.num_out, dtype=dtype)
    kernel = _products if len(x) <= MOST_ROWS else _tiled_products
    kernel(
        weight.num_strips,
        len(x),
        weight.num_in,
        weight.depth,
        weight.num_out,
        weight.address,
        0 if up is None else up.address,
        *(0 if bias is None else bias.data_ptr() for bias in biases),
        *jit.words_of(x),
        *(_NONE if residual is None else jit.words_of(residual)),
        *jit.words_of(y),
        is_shared=weight.num_out * weight.num_in >= _SHARED_WEIGHTS,
    )
    return y


@jit.Kernel
def _products(words: Any) -> None:
    """An item is a strip."""
    num_rows, num_in, depth = words[2], words[3], words[4]
    # What is beyond the inputs meets weights of zero, and must be finite.
    rows = np.zeros(MOST_ROWS * depth, np.float32)
    for m in range(num_rows):
        line = jit.floats_at(rows.ctypes.data + 4 * m * depth)
        jit.widen(line, jit.rows(words, 10), m, 0, num_in)
    sums, ups = np.empty((MOST_ROWS, WIDTH), np.float32), np.empty((MOST_ROWS, WIDTH), np.float32)
    strip = jit.take(words)
    while strip < words[1]:
        first = strip * WIDTH
        count = min(WIDTH, words[5] - first)
        _sum_strip(words[6], strip, num_rows, rows.ctypes.data, depth, sums)
        _add_bias(words[8], first, count, num_rows, sums)
        if words[7] != 0:
            _sum_strip(words[7], strip, num_rows, rows.ctypes.data, depth, ups)
            _add_bias(words[9], first, count, num_rows, ups)
            for m in range(num_rows):
                for n in range(WIDTH):
                    sums[m, n] = dots.silu_mul(sums[m, n], ups[m, n])
        _put(words, first, count, 0, num_rows, sums)
        strip = jit.take(words)


@jit.Kernel
def _tiled_products(words: Any) -> None:
    """An item is a strip; rows come by 32."""
    num_rows, num_in, depth = words[2], words[3], words[4]
    x = jit.rows(words, 10)
    # Whole tiles; what is beyond the inputs must be finite here too.
    num_blocks = (num_rows + tiles.SIDE - 1) // tiles.SIDE
    rows = np.zeros(num_blocks * tiles.SIDE * depth, np.uint16)
    for m in range(num_rows):
        line = jit.halves_at(x[0] + 2 * m * x[2])
        for k in range(num_in):
            rows[m * depth + k] = line[k]
    sums = np.empty((tiles.SIDE, WIDTH), np.float32)
    tiles.open_all()
    strip = jit.take(words)
    while strip < words[1]:
        first = strip * WIDTH
        count = min(WIDTH, words[5] - first)
        for row in range(0, num_rows, tiles.SIDE):
            height = min(tiles.SIDE, num_rows - row)
            own = rows.ctypes.data + 2 * row * depth
            _sum_tiles(words[6], strip, height, own, depth, sums)
            _add_bias(words[8], first, count, height, sums)
            _put(words, first, count, row, height, sums)
        strip = jit.take(words)
    tiles.close()


@jit.function
def _sum_tiles(weight: Any, strip: Any, num_rows: Any, rows: Any, depth: Any, sums: Any) -> None:
    """sums [SIDE, WIDTH] = the strip's outputs of up to SIDE rows."""
    at, step = weight + 2 * WIDTH * depth * strip, 4 * WIDTH
    second = 2 * tiles.ROWS * depth if num_rows > tiles.ROWS else 0
    tiles.clear()
    for k in range(0, depth, tiles.DEPTH):
        weights, inputs = at + step // 2 * k, rows + 2 * k
        jit.prefetch(weights + jit.AHEAD_BYTES, step // 2 * tiles.DEPTH)
        tiles.add(
            inputs, 0 if second == 0 else inputs + second, 2 * depth, weights, weights + 64, step
        )
    tiles.store(sums.ctypes.data)


@jit.function
def _put(words: Any, first: Any, count: Any, first_row: Any, num_rows: Any, sums: Any) -> None:
    """sums [num_rows, count], with the residual, are the outputs from `first` on."""
    residual, out = jit.rows(words, 14), jit.rows(words, 18)
    for m in range(num_rows):
        if residual[0] != 0:
            for n in range(count):
                sums[m, n] += jit.read(residual, first_row + m, first + n)
        jit.narrow(out, first_row + m, first, jit.floats_at(sums[m].ctypes.data), count)


@jit.function
def _add_bias(bias: Any, first: Any, count: Any, num_rows: Any, sums: Any) -> None:
    if bias != 0:
        for m in range(num_rows):
            for n in range(count):
                sums[m, n] += jit.from_half(jit.halves_at(bias)[first + n])


@jit.Kernel
def _plain(words: Any) -> None:
    """An item is a block of outputs."""
    num_rows, num_out, num_in = words[2], words[3], words[4]
    weight, out = jit.halves_at(words[5]), jit.floats_at(words[6])
    room = np.empty(MOST_ROWS * num_in, np.float32)
    for m in range(num_rows):
        line = jit.floats_at(room.ctypes.data + 4 * m * num_in)
        jit.widen(line, jit.rows(words, 7), m, 0, num_in)
    block = jit.take(words)
    while block < words[1]:
        rows = jit.floats_at(room.ctypes.data)  # not the array: its indices may be negative
        for left in range(block * _OUTPUTS, min(num_out, (block + 1) * _OUTPUTS), 2):
            right = min(left + 1, num_out - 1)
            a, b = left * num_in, right * num_in
            dots.ask_ahead(weight, a, 2 * num_in)
            if num_rows >= dots.FILLED_UP:
                z, last = 2 * num_in, (num_rows - 1) * num_in
                lefts, rights = dots.pair_of_four(weight, a, b, rows, 0, num_in, z, last, num_in)
                for m in range(num_rows):
                    out[m * num_out + left] = lefts[m]
                    out[m * num_out + right] = rights[m]
            else:
                for m in range(num_rows):
                    both = dots.pair(weight, a, b, rows, m * num_in, num_in)
                    out[m * num_out + left] = both[0]
                    out[m * num_out + right] = both[1]
        block = jit.take(words)


@jit.Kernel
def _tiled_plain(words: Any) -> None:
    """An item is a block of outputs; rows come by 32."""
    num_rows, num_out, num_in = words[2], words[3], words[4]
    weight, out, x = words[5], jit.floats_at(words[6]), jit.rows(words, 7)
    numbers, own = np.arange(num_rows), tiles.packed_bytes(num_in)
    num_blocks = (num_rows + tiles.SIDE - 1) // tiles.SIDE
    room = np.empty(num_blocks * own, np.uint8)
    for first in range(0, num_rows, tiles.SIDE):
        count = min(tiles.SIDE, num_rows - first)
        at = room.ctypes.data + first // tiles.SIDE * own
        tiles.pack(at, x, numbers[first:], count, num_in)
    sums, step = np.empty((tiles.SIDE, tiles.SIDE), np.float32), 2 * num_in
    tiles.open_all()
    block = jit.take(words)
    while block < words[1]:
        for output in range(block * _OUTPUTS, min(num_out, (block + 1) * _OUTPUTS), tiles.SIDE):
            # Outputs that do not fill two tiles are some that have been made before.
            start = max(0, min(output, num_out - tiles.SIDE))
            for first in range(0, num_rows, tiles.SIDE):
                count = min(tiles.SIDE, num_rows - first)
                at = room.ctypes.data + first // tiles.SIDE * own
                a0 = weight + start * step
                a1 = a0 + tiles.ROWS * step
                tiles.multiply(a0, a1, step, tiles.SIDE * step, at, count, num_in, sums.ctypes.data)
                for m in range(count):
                    for n in range(tiles.SIDE):
                        out[(first + m) * num_out + start + n] = sums[n, m]
        block = jit.take(words)
    tiles.close()


@jit.function
def _sum_strip(weight: Any, strip: Any, num_rows: Any, rows: Any, depth: Any, sums: Any) -> None:
    """sums [num_rows, WIDTH] = the strip's outputs of all rows."""
    at, step, out = weight + 2 * WIDTH * depth * strip, 4 * depth, sums.ctypes.data
    x, y = rows, rows + step
    if num_rows == 1:
        _strip_of_one(at, x, x, x, x, depth // 2, out)
    elif num_rows == 2:
        _strip_of_two(at, x, y, x, y, depth // 2, out)
    else:
        z = rows + 2 * step
        _strip_of_four(at, x, y, z, z if num_rows == 3 else z + step, depth // 2, out)


_FLOAT, _INT, _LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_FLOATS, _INTS = ir.VectorType(_FLOAT, WIDTH), ir.VectorType(_INT, WIDTH)
_CONTRACT = ("contract",)


def _strip_of(num_rows: int) -> Callable[..., None]:
    """(address of a strip, addresses of four rows in fp32, K / 2, address of out [num_rows, WIDTH])

    Vectors as wide as a strip: numba's own loops do not keep its sums in registers.
    """

    def of_rows(context: Any, at: Any, x: Any, y: Any, z: Any, w: Any, pairs: Any, out: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            at, *rows, pairs, out = args
            sums = _emit_loop(builder, at, rows[:num_rows], pairs)
            for row, total in enumerate(sums):
                place = builder.add(out, ir.Constant(_LONG, 4 * WIDTH * row))
                builder.store(total, builder.inttoptr(place, _FLOATS.as_pointer()), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), generate

    return intrinsic(of_rows)


def _emit_loop(builder: Any, at: Any, rows: list[Any], pairs: Any) -> list[Any]:
    """Over the pairs of inputs; the sums of each row at its end."""
    before, loop = builder.block, builder.append_basic_block("pairs")
    after = builder.append_basic_block("pairs.end")
    builder.branch(loop)
    builder.position_at_end(loop)
    pair = builder.phi(_LONG)
    pair.add_incoming(ir.Constant(_LONG, 0), before)
    # Of few rows each has two sums, or additions would wait for one another.
    count = 2 if len(rows) < 4 else 1
    sums = [[builder.phi(_FLOATS) for _ in range(count)] for _ in rows]
    weights = builder.add(at, _times(builder, pair, 4 * WIDTH))
    for line in range(0, 4 * WIDTH, jit.LINE_BYTES):
        ahead = ir.Constant(_LONG, jit.AHEAD_BYTES + line)
        jit.emit_prefetch(builder, builder.add(weights, ahead))
    halves = _emit_halves(builder, weights)
    ends = []
    for row, own in zip(rows, sums, strict=True):
        values = _emit_values(builder, builder.add(row, _times(builder, pair, 8)))
        totals: list[Any] = list(own)
        for half, value in enumerate(values):
            product = builder.fmul(halves[half], value, flags=_CONTRACT)
            into = half % count
            totals[into] = builder.fadd(totals[into], product, flags=_CONTRACT)
        ends.append(totals)
    following = builder.add(pair, ir.Constant(_LONG, 1))
    pair.add_incoming(following, loop)
    for own, totals in zip(sums, ends, strict=True):
        for phi, total in zip(own, totals, strict=True):
            phi.add_incoming(ir.Constant(_FLOATS, [0.0] * WIDTH), before)
            phi.add_incoming(total, loop)
    builder.cbranch(builder.icmp_signed("<", following, pairs), loop, after)
    builder.position_at_end(after)
    return [totals[0] if count == 1 else builder.fadd(*totals) for totals in ends]


def _emit_halves(builder: Any, address: Any) -> tuple[Any, Any]:
    """The weights of a strip at an even input, and those at the odd one after it."""
    words = builder.load(builder.inttoptr(address, _INTS.as_pointer()), align=4)
    low = builder.shl(words, ir.Constant(_INTS, [16] * WIDTH))
    high = builder.and_(words, ir.Constant(_INTS, [0xFFFF0000] * WIDTH))
    return builder.bitcast(low, _FLOATS), builder.bitcast(high, _FLOATS)


def _emit_values(builder: Any, address: Any) -> list[Any]:
    """A row's inputs at the two, each in all places of a vector."""
    none, first = ir.Constant(_FLOATS, ir.Undefined), ir.Constant(_INT, 0)
    values = []
    for place in (address, builder.add(address, ir.Constant(_LONG, 4))):
        value = builder.load(builder.inttoptr(place, _FLOAT.as_pointer()), align=4)
        one = builder.insert_element(none, value, first)
        values.append(builder.shuffle_vector(one, none, ir.Constant(_INTS, [0] * WIDTH)))
    return values


def _times(builder: Any, value: Any, by: int) -> Any:
    return builder.mul(value, ir.Constant(_LONG, by))


_strip_of_one, _strip_of_two, _strip_of_four = (_strip_of(count) for count in (1, 2, 4))
