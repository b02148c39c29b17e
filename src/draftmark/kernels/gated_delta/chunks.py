"""gated_delta's prompts, compiled: a key head of a span at a time, with its value heads, chunk by
chunk, as `torch.py` says.

What a state said before is subtracted first; the triangular system is then solved by 8 rows, which
see the rows above them by one product and each other one by one. Sums of gates are float64. All is
float32 in a thread's own room, with rows and columns filled up with zeros to whole blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from draftmark.kernels import blocks, jit
from draftmark.kernels.gated_delta import numba as rows
from draftmark.kernels.gated_delta.cache import FOLD_TOKENS, DeltaCache
from draftmark.kernels.gated_delta.torch import CHUNK_TOKENS
from draftmark.kernels.spans import Span, words_of_spans

_LINE = 4 * CHUNK_TOKENS  # bytes of a row of a chunk's square matrices


def prefill(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    cache: DeltaCache,
    spans: Sequence[Span],
) -> Tensor:
    q, k, v = (x if x.stride(2) == 1 else x.contiguous() for x in (q, k, v))
    out = torch.empty(v.shape, dtype=v.dtype)
    given = words_of_spans(spans)
    _prefill(
        len(spans) * cache.keys.shape[2],
        *rows.words_of(cache, given, given, given, 0),
        *(*jit.words_of(q), *jit.words_of(k), *jit.words_of(v)),
        *(*jit.words_of(g), *jit.words_of(beta), *jit.words_of(out)),
        is_shared=True,
    )
    return out


class _Room(NamedTuple):
    """Addresses of a thread's own: unit k and q [c, Dk], k by columns [Dk, c], k k^T and q k^T
    [c, c], what a token takes of earlier ones' d, for its own (negated) and for its o, k (negated)
    and q as they see the state, d and o [c, Dv], d as it enters the state, the states of all value
    heads [r, Dk, Dv], and the running sums of gates, in float64."""

    k: int
    q: int
    columns: int
    by_k: int
    by_q: int
    solved: int
    weights: int
    seen_k: int
    seen_q: int
    delta: int
    out: int
    entering: int
    state: int
    total: int


class _Span(NamedTuple):
    slot: int
    start: int
    end: int
    key_head: int


class _Chunk(NamedTuple):
    """`size` tokens from number `token` and position `first` on, of which the state takes the first
    `num_folded`; `is_last`: the others become records."""

    token: int
    first: int
    size: int
    num_folded: int
    is_last: int


@jit.function
def _room_sizes(call: Any) -> Any:
    """Bytes of a [c, Dk], a [c, Dv], a [c, c] and a state, filled up."""
    return (
        _LINE * call.key_dim,
        _LINE * blocks.whole_columns(call.value_dim),
        _LINE * CHUNK_TOKENS,
        4 * blocks.whole_rows(call.key_dim) * blocks.whole_columns(call.value_dim),
    )


@jit.function
def _room_at(call: Any, base: Any) -> Any:
    keys, values, square, _ = _room_sizes(call)
    columns = _LINE * blocks.whole_rows(call.key_dim)
    squares = base + 4 * keys + columns
    deltas = squares + 4 * square
    state = deltas + 3 * values + 8 * CHUNK_TOKENS
    return _Room(
        base,
        base + keys,
        base + 4 * keys,
        squares,
        squares + square,
        squares + 2 * square,
        squares + 3 * square,
        base + 2 * keys,
        base + 3 * keys,
        deltas,
        deltas + values,
        deltas + 2 * values,
        state,
        state - 8 * CHUNK_TOKENS,
    )


@jit.Kernel
def _prefill(words: Any) -> None:
    """An item is a key head of a span."""
    call = rows.call_of(words)
    inputs = (
        jit.rows(words, rows.INPUTS),
        jit.rows(words, rows.INPUTS + 4),
        jit.rows(words, rows.INPUTS + 8),
        jit.rows(words, rows.INPUTS + 12),
        jit.rows(words, rows.INPUTS + 16),
    )
    out = jit.rows(words, rows.INPUTS + 20)
    group = call.num_heads // call.key_heads
    num_bytes = _room_at(call, 0).state + group * _room_sizes(call)[3]
    # Zeros: what fills up stays so.
    scratch = np.zeros(num_bytes // 8 + 1, np.float64)
    number = jit.take(words)
    while number < words[1]:
        _run_span(call, inputs, out, _room_at(call, scratch.ctypes.data), number)
        number = jit.take(words)


@jit.function
def _run_span(call: Any, inputs: Any, out: Any, room: Any, number: Any) -> None:
    given = jit.ints_at(call.slots + 32 * (number // call.key_heads))
    offset, count, start, slot = given[0], given[1], given[2], given[3]
    span = _Span(slot, start, start + count, number % call.key_heads)
    group, state_bytes = call.num_heads // call.key_heads, _room_sizes(call)[3]
    for member in range(group):
        head = span.key_head * group + member
        _open_state(call, span, head, room, room.state + member * state_bytes)
    checkpoint = span.end - span.end % FOLD_TOKENS
    first = start
    while first < span.end:
        size = min(CHUNK_TOKENS - first % CHUNK_TOKENS, span.end - first)
        num_folded = max(min(first + size, checkpoint) - first, 0)
        token, is_last = offset + first - start, first + size == span.end
        chunk = _Chunk(token, first, size, num_folded, is_last)
        _compare_keys(call, inputs, span, chunk, room)
        for member in range(group):
            head = span.key_head * group + member
            state = room.state + member * state_bytes
            _run_chunk(call, inputs, out, span, chunk, head, room, state)
        first += size
    if checkpoint > start - start % FOLD_TOKENS or start == 0:
        for member in range(group):
            head = span.key_head * group + member
            _copy_state(call, span, head, room.state + member * state_bytes, True)


@jit.function
def _record_at(call: Any, span: Any, position: Any) -> Any:
    return span.slot * call.depth + position % call.depth


@jit.function
def _copy_state(call: Any, span: Any, head: Any, state: Any, is_kept: Any) -> None:
    """Between the cache and an address."""
    step = 4 * blocks.whole_columns(call.value_dim)
    stored = 4 * (span.slot * call.num_heads + head) * call.key_dim * call.value_dim + call.state
    for d in range(call.key_dim):
        own = jit.floats_at(state + d * step)
        line = jit.floats_at(stored + 4 * d * call.value_dim)
        if is_kept:
            for e in range(call.value_dim):
                line[e] = own[e]
        else:
            for e in range(call.value_dim):
                own[e] = line[e]


@jit.function
def _open_state(call: Any, span: Any, head: Any, room: Any, state: Any) -> None:
    """The state where the span starts: nothing, or the checkpoint with the records since."""
    width = blocks.whole_columns(call.value_dim)
    if span.start == 0:
        own = jit.floats_at(state)
        for i in range(call.key_dim * width):
            own[i] = numba.float32(0.0)
        return
    _copy_state(call, span, head, state, False)
    count = span.start % FOLD_TOKENS
    if count == 0:
        return
    total, running = jit.doubles_at(room.total), 0.0
    for i in range(count):
        place = _record_at(call, span, span.start - count + i)
        gates = jit.floats_at(call.gates + 4 * place * call.num_heads)
        running += gates[head]
        total[i] = running
        keys = call.keys + 4 * (place * call.key_heads + span.key_head) * call.key_dim
        _put_column(room.columns, i, jit.floats_at(keys), call.key_dim)
        deltas = jit.floats_at(call.deltas + 4 * (place * call.num_heads + head) * call.value_dim)
        line = jit.floats_at(room.delta + 4 * i * width)
        for e in range(call.value_dim):
            line[e] = deltas[e]
    _fold(call, room, state, count)


@jit.function
def _put_column(columns: Any, i: Any, key: Any, size: Any) -> None:
    to = jit.floats_at(columns)
    for d in range(size):
        to[d * CHUNK_TOKENS + i] = key[d]


@jit.function
def _fold(call: Any, room: Any, state: Any, count: Any) -> None:
    """The state moves on by the first `count` tokens of a chunk."""
    width, total = blocks.whole_columns(call.value_dim), jit.doubles_at(room.total)
    last = total[count - 1]
    for i in range(count):
        leaving = jit.exp(numba.float32(last - total[i]))
        delta = jit.floats_at(room.delta + 4 * i * width)
        line = jit.floats_at(room.entering + 4 * i * width)
        for e in range(width):
            line[e] = leaving * delta[e]
    decay, own = jit.exp(numba.float32(last)), jit.floats_at(state)
    for i in range(call.key_dim * width):
        own[i] *= decay
    blocks.add_product(
        state,
        4 * width,
        room.columns,
        _LINE,
        room.entering,
        4 * width,
        blocks.whole_rows(call.key_dim),
        width,
        count,
    )


@jit.function
def _compare_keys(call: Any, inputs: Any, span: Any, chunk: Any, room: Any) -> None:
    """k and q of a chunk, and their products with k, as far as a token sees; the keys' records."""
    filled, row_bytes = blocks.whole_rows(chunk.size), 4 * call.key_dim
    for i in range(chunk.size):
        k, q = jit.floats_at(room.k + i * row_bytes), jit.floats_at(room.q + i * row_bytes)
        rows.unit(k, inputs[1], chunk.token + i, span.key_head, call.key_dim, 1.0)
        rows.unit(q, inputs[0], chunk.token + i, span.key_head, call.key_dim, call.key_dim**-0.5)
        _put_column(room.columns, i, k, call.key_dim)
        if chunk.is_last and i >= chunk.num_folded:
            place = _record_at(call, span, chunk.first + i) * call.key_heads + span.key_head
            record = jit.floats_at(call.keys + place * row_bytes)
            for d in range(call.key_dim):
                record[d] = k[d]
    by_k, by_q = jit.floats_at(room.by_k), jit.floats_at(room.by_q)
    for i in range(filled * CHUNK_TOKENS):
        by_k[i] = by_q[i] = numba.float32(0.0)
    for i in range(0, filled, blocks.ROWS):
        columns = blocks.whole_columns(i + blocks.ROWS)
        at = i * _LINE
        first, second = room.k + i * row_bytes, room.q + i * row_bytes
        blocks.add_product(
            room.by_k + at,
            _LINE,
            first,
            row_bytes,
            room.columns,
            _LINE,
            blocks.ROWS,
            columns,
            call.key_dim,
        )
        blocks.add_product(
            room.by_q + at,
            _LINE,
            second,
            row_bytes,
            room.columns,
            _LINE,
            blocks.ROWS,
            columns,
            call.key_dim,
        )


@jit.function
def _run_chunk(
    call: Any, inputs: Any, out: Any, span: Any, chunk: Any, head: Any, room: Any, state: Any
) -> None:
    """o of a value head, the records of d and gates, and its state."""
    _weigh(call, inputs, span, chunk, head, room)
    _see_state(call, inputs, chunk, head, room, state)
    _solve(call, chunk, room)
    width = blocks.whole_columns(call.value_dim)
    for i in range(chunk.size):
        jit.narrow(
            out, chunk.token + i, head, jit.floats_at(room.out + 4 * i * width), call.value_dim
        )
    if chunk.is_last:
        for i in range(chunk.num_folded, chunk.size):
            place = _record_at(call, span, chunk.first + i) * call.num_heads + head
            record = jit.floats_at(call.deltas + 4 * place * call.value_dim)
            delta = jit.floats_at(room.delta + 4 * i * width)
            for e in range(call.value_dim):
                record[e] = delta[e]
    if chunk.num_folded > 0:
        _fold(call, room, state, chunk.num_folded)


@jit.function
def _weigh(call: Any, inputs: Any, span: Any, chunk: Any, head: Any, room: Any) -> None:
    """The sums of gates and their records; what each token takes of itself and those before it,
    nothing of those after it: that is known before the exponential, which overflows there."""
    total, running = jit.doubles_at(room.total), numba.float64(0.0)
    for i in range(chunk.size):
        gate = jit.read(inputs[3], chunk.token + i, head)
        gate = numba.float32(rows.GATE_FLOOR) if gate < rows.GATE_FLOOR else gate
        running += gate
        total[i] = running
        if chunk.is_last and i >= chunk.num_folded:
            place = _record_at(call, span, chunk.first + i) * call.num_heads + head
            jit.floats_at(call.gates)[place] = gate
    for i in range(blocks.whole_rows(chunk.size)):
        solved, weights = (
            jit.floats_at(room.solved + i * _LINE),
            jit.floats_at(room.weights + i * _LINE),
        )
        by_k, by_q = jit.floats_at(room.by_k + i * _LINE), jit.floats_at(room.by_q + i * _LINE)
        num_seen = i + 1 if i < chunk.size else 0
        if num_seen > 0:
            beta = jit.read(inputs[4], chunk.token + i, head)
            for j in range(num_seen):
                weights[j] = jit.exp(numba.float32(total[i] - total[j]))
            for j in range(num_seen):
                solved[j] = -beta * weights[j] * by_k[j]
                weights[j] *= by_q[j]
        for j in range(num_seen, blocks.whole_rows(i + 1)):
            solved[j] = weights[j] = numba.float32(0.0)


@jit.function
def _see_state(call: Any, inputs: Any, chunk: Any, head: Any, room: Any, state: Any) -> None:
    """delta = beta (v - what the state says to k), out = what it says to q."""
    width, filled = blocks.whole_columns(call.value_dim), blocks.whole_rows(chunk.size)
    delta, out = jit.floats_at(room.delta), jit.floats_at(room.out)
    for i in range(filled * width):
        out[i] = delta[i] = numba.float32(0.0)
    for i in range(chunk.size):
        line = jit.floats_at(room.delta + 4 * i * width)
        jit.widen(line, inputs[2], chunk.token + i, head, call.value_dim)
    if chunk.first > 0:  # at 0 there is no state
        total, row_bytes = jit.doubles_at(room.total), 4 * call.key_dim
        for i in range(filled):
            by = numba.float32(0.0) if i >= chunk.size else jit.exp(numba.float32(total[i]))
            k, q = jit.floats_at(room.k + i * row_bytes), jit.floats_at(room.q + i * row_bytes)
            seen_k = jit.floats_at(room.seen_k + i * row_bytes)
            seen_q = jit.floats_at(room.seen_q + i * row_bytes)
            for d in range(call.key_dim):
                seen_k[d] = -by * k[d]
                seen_q[d] = by * q[d]
        step = 4 * width
        blocks.add_product(
            room.delta,
            step,
            room.seen_k,
            row_bytes,
            state,
            step,
            filled,
            width,
            call.key_dim,
        )
        blocks.add_product(
            room.out,
            step,
            room.seen_q,
            row_bytes,
            state,
            step,
            filled,
            width,
            call.key_dim,
        )
    for i in range(chunk.size):
        beta = jit.read(inputs[4], chunk.token + i, head)
        line = jit.floats_at(room.delta + 4 * i * width)
        for e in range(width):
            line[e] *= beta


@jit.function
def _solve(call: Any, chunk: Any, room: Any) -> None:
    """delta less what it takes of earlier ones; out with what it takes of delta."""
    width = blocks.whole_columns(call.value_dim)
    step = 4 * width
    for first in range(0, chunk.size, blocks.ROWS):
        own, at = room.delta + first * step, first * _LINE
        blocks.add_product(
            own,
            step,
            room.solved + at,
            _LINE,
            room.delta,
            step,
            blocks.ROWS,
            width,
            first,
        )
        last = min(first + blocks.ROWS, chunk.size)
        for i in range(first, last):
            line, by = jit.floats_at(room.delta + i * step), jit.floats_at(room.solved + i * _LINE)
            for j in range(first, i):
                earlier, factor = jit.floats_at(room.delta + j * step), by[j]
                for e in range(width):
                    line[e] += factor * earlier[e]
        blocks.add_product(
            room.out + first * step,
            step,
            room.weights + at,
            _LINE,
            room.delta,
            step,
            blocks.ROWS,
            width,
            last,
        )
