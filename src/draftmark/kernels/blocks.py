"""Products of float32 in compiled kernels, 8 rows by 32 columns at a time, whose sums are kept in
registers, as numba's own loops do not. Matrices are an address and the bytes between rows, whose
numbers are contiguous.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from draftmark.kernels import jit

ROWS, COLUMNS = 8, 32
_WIDTH = 16  # of a vector
_FLOAT, _INT, _LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_FLOATS = ir.VectorType(_FLOAT, _WIDTH)


def _add_block(
    context: Any, c: Any, c_step: Any, a: Any, a_step: Any, b: Any, b_step: Any, depth: Any
) -> Any:
    """c [ROWS, COLUMNS] += a [ROWS, depth] b [depth, COLUMNS], depth > 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        c, c_step, a, a_step, b, b_step, depth = args
        places = [
            [
                builder.inttoptr(
                    builder.add(_at(builder, c, c_step, row), ir.Constant(_LONG, 4 * column)),
                    _FLOATS.as_pointer(),
                )
                for column in range(0, COLUMNS, _WIDTH)
            ]
            for row in range(ROWS)
        ]
        sums = [[builder.load(place, align=4) for place in line] for line in places]
        ends = _emit_loop(builder, sums, (a, a_step, b, b_step, depth))
        for line, totals in zip(places, ends, strict=True):
            for place, total in zip(line, totals, strict=True):
                builder.store(total, place, align=4)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7), generate


def _emit_loop(builder: Any, sums: list[list[Any]], inputs: tuple[Any, ...]) -> list[list[Any]]:
    """Over the depth; the sums at its end."""
    a, a_step, b, b_step, depth = inputs
    before, loop = builder.block, builder.append_basic_block("depth")
    after = builder.append_basic_block("depth.end")
    lines = [_at(builder, a, a_step, row) for row in range(ROWS)]
    builder.branch(loop)
    builder.position_at_end(loop)
    k, right = builder.phi(_LONG), builder.phi(_LONG)
    k.add_incoming(ir.Constant(_LONG, 0), before)
    right.add_incoming(b, before)
    totals = [[builder.phi(_FLOATS) for _ in line] for line in sums]
    vectors = [
        builder.load(
            builder.inttoptr(
                builder.add(right, ir.Constant(_LONG, 4 * column)), _FLOATS.as_pointer()
            ),
            align=4,
        )
        for column in range(0, COLUMNS, _WIDTH)
    ]
    offset = builder.mul(k, ir.Constant(_LONG, 4))
    ends = []
    for address, line in zip(lines, totals, strict=True):
        value = _emit_value(builder, builder.add(address, offset))
        products = [builder.fmul(value, vector, flags=("contract",)) for vector in vectors]
        ends.append(
            [
                builder.fadd(total, product, flags=("contract",))
                for total, product in zip(line, products, strict=True)
            ]
        )
    following = builder.add(k, ir.Constant(_LONG, 1))
    k.add_incoming(following, loop)
    right.add_incoming(builder.add(right, b_step), loop)
    for line, first, last in zip(totals, sums, ends, strict=True):
        for phi, start, end in zip(line, first, last, strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(end, loop)
    builder.cbranch(builder.icmp_signed("<", following, depth), loop, after)
    builder.position_at_end(after)
    return ends


def _at(builder: Any, address: Any, step: Any, row: int) -> Any:
    return builder.add(address, builder.mul(step, ir.Constant(_LONG, row)))


def _emit_value(builder: Any, address: Any) -> Any:
    """A float in all places of a vector."""
    value = builder.load(builder.inttoptr(address, _FLOAT.as_pointer()), align=4)
    one = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), value, ir.Constant(_INT, 0))
    return builder.shuffle_vector(
        one,
        ir.Constant(_FLOATS, ir.Undefined),
        ir.Constant(ir.VectorType(_INT, _WIDTH), [0] * _WIDTH),
    )


_add: Any = intrinsic(_add_block)


@jit.function
def whole_rows(count: Any) -> Any:
    """`count`, filled up."""
    return (count + ROWS - 1) // ROWS * ROWS


@jit.function
def whole_columns(count: Any) -> Any:
    return (count + COLUMNS - 1) // COLUMNS * COLUMNS


@jit.function
def add_product(
    c: Any,
    c_step: Any,
    a: Any,
    a_step: Any,
    b: Any,
    b_step: Any,
    num_rows: Any,
    num_columns: Any,
    depth: Any,
) -> None:
    """c += a b, of rows and columns that are filled up, so that there is room for whole blocks."""
    if depth > 0:
        # The columns' part of b stays in the first-level cache.
        for column in range(0, num_columns, COLUMNS):
            for row in range(0, num_rows, ROWS):
                _add(
                    c + row * c_step + 4 * column,
                    c_step,
                    a + row * a_step,
                    a_step,
                    b + 4 * column,
                    b_step,
                    depth,
                )
