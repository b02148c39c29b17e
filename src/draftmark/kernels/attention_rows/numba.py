"""attention_rows compiled: a KV head of a row at a time, with all query heads that use it and all
tokens of the row's window.

Keys are taken by blocks, with running maxima and sums, so that scratch does not grow with the
context. Nobody waits for anybody: what an item reads of this step's keys it has written itself.
Pools in other formats than bf16 and fp32 are left to torch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from draftmark.kernels import blocks, dots, jit
from draftmark.kernels.attention_rows import composed
from draftmark.kernels.attention_rows import torch as plain
from draftmark.kernels.attention_rows.layout import RowsLayout
from draftmark.kernels.attention_rows.weights import RowWeights
from draftmark.kernels.kv_write import torch as kv_write
from draftmark.kernels.norm import numba as norm
from draftmark.kernels.rope import torch as rope

_KEYS = 64  # of a block
# From so many numbers of keys on, as many as there may be, one core is slower than waking the
# others.
_SHARED_KEYS = 1 << 15
_LEAST = numba.float32(-np.inf)


def verify(x: Tensor, weights: RowWeights, pool: Tensor, plan: RowsLayout) -> Tensor:
    if pool.dtype not in (torch.bfloat16, torch.float32):
        parts = (norm, rope, kv_write)
        return composed.verify(parts, x, weights, pool, plain.plan(plan, x.dtype))
    shape, table = plan.shape, plan.table
    heads, kv_heads, size = shape.num_heads, shape.kv_heads, shape.head_dim
    num_rows, num_columns = plan.pages.shape
    x = x.view(len(x), -1, size)
    y = torch.empty(len(x), heads, size, dtype=x.dtype)
    assert plan.pages.dtype == torch.int32 and plan.pages.is_contiguous()
    assert pool.is_contiguous() and table.cos.dtype == torch.float32 and table.cos.is_contiguous()
    _verify(
        num_rows * kv_heads,
        *(heads, kv_heads, size, shape.page_tokens, plan.width, num_columns, table.cos.shape[1]),
        *(plan.pages.data_ptr(), jit.ints_of(plan.lengths), jit.ints_of(plan.store)),
        *(jit.ints_of(plan.positions), 0 if plan.first is None else jit.ints_of(plan.first)),
        *(table.cos.data_ptr(), table.sin.data_ptr(), jit.word_of(shape.scale)),
        *(weights.has_gate, jit.word_of(weights.eps)),
        *(pool.data_ptr(), jit.is_half(pool), 2 * kv_heads * size, size),
        *(*_line_of(weights.q_norm, size), *_line_of(weights.k_norm, size)),
        *(*jit.words_of(x), *jit.words_of(y)),
        is_shared=pool.shape[2] * num_rows * num_columns * shape.page_tokens * size > _SHARED_KEYS,
    )
    return y.view(len(x), -1)


def _line_of(weight: Tensor | None, size: int) -> tuple[int, int, int, int]:
    if weight is None:
        return 0, 0, 0, 0
    assert weight.shape == (size,) and weight.is_contiguous(), weight.shape
    return weight.data_ptr(), jit.is_half(weight), 0, 0


class _Call(NamedTuple):
    """What follows the number of items: sizes, then addresses, then two numbers of a norm and a
    flag; then rows of the pool, both norms, x and y."""

    num_heads: int
    kv_heads: int
    size: int
    page_tokens: int
    width: int
    num_columns: int
    rotary_dim: int
    pages: int
    lengths: int
    store: int
    positions: int
    first: int
    cos: int
    sin: int
    scale: int
    has_gate: int
    eps: int


_POOL = 2 + len(_Call._fields)


class _Rows(NamedTuple):
    pool: Any
    q_norm: Any
    k_norm: Any
    x: Any
    y: Any


class _Room(NamedTuple):
    """Addresses of a thread's own, float32: queries [Q, D], keys [_KEYS, D], values
    [_KEYS, columns], weights [Q, _KEYS], the answer [Q, columns], each query's running maximum and
    sum. Q and the columns are filled up to whole blocks."""

    queries: int
    keys: int
    values: int
    weights: int
    answer: int
    tops: int
    sums: int


class _Item(NamedTuple):
    """A KV head of a row: its tokens' first number, keys from `begin` to `end`, of which `length`
    were there before."""

    row: int
    head: int
    token: int
    length: int
    begin: int
    end: int


@jit.Kernel
def _verify(words: Any) -> None:
    call = _call_of(words)
    given = _Rows(
        jit.rows(words, _POOL),
        jit.rows(words, _POOL + 4),
        jit.rows(words, _POOL + 8),
        jit.rows(words, _POOL + 12),
        jit.rows(words, _POOL + 16),
    )
    group = call.num_heads // call.kv_heads
    queries, columns = (
        blocks.whole_rows(call.width * group),
        blocks.whole_columns(call.size),
    )
    # Zeros where nothing is ever written: the rest of whole blocks.
    own = np.zeros((queries + _KEYS) * (call.size + columns) + queries * (_KEYS + 2), np.float32)
    head = np.empty(2 * call.size, np.float32)
    item = jit.take(words)
    while item < words[1]:
        at = own.ctypes.data
        keys = at + 4 * queries * call.size
        values = keys + 4 * _KEYS * call.size
        weights = values + 4 * _KEYS * columns
        answer = weights + 4 * queries * _KEYS
        tops = answer + 4 * queries * columns
        room = _Room(at, keys, values, weights, answer, tops, tops + 4 * queries)
        _run_item(call, given, room, head, item)
        item = jit.take(words)


@jit.function
def _call_of(words: Any) -> Any:
    return _Call(
        words[2],
        words[3],
        words[4],
        words[5],
        words[6],
        words[7],
        words[8],
        words[9],
        words[10],
        words[11],
        words[12],
        words[13],
        words[14],
        words[15],
        words[16],
        words[17],
        words[18],
    )


@jit.function
def _run_item(call: Any, given: Any, room: Any, head: Any, number: Any) -> None:
    item = _store(call, given, head, number)
    group, columns = call.num_heads // call.kv_heads, blocks.whole_columns(call.size)
    count = call.width * group
    tops, sums = jit.floats_at(room.tops), jit.floats_at(room.sums)
    answer = jit.floats_at(room.answer)
    for r in range(count):
        tops[r], sums[r] = _LEAST, numba.float32(0.0)
        token, q_head = item.token + r // group, item.head * group + r % group
        _turn(call, given, given.q_norm, token, q_head, head)
        query = jit.floats_at(room.queries + 4 * r * call.size)
        for i in range(call.size):
            query[i] = head[i] * numba.float32(jit.number(call.scale))
    for i in range(count * columns):
        answer[i] = numba.float32(0.0)
    for first in range(item.begin, item.end, _KEYS):
        num_keys = min(_KEYS, item.end - first)
        _gather(call, given, room, item, first, num_keys)
        _weigh(call, room, item, first, num_keys)
        blocks.add_product(
            room.answer,
            4 * columns,
            room.weights,
            4 * _KEYS,
            room.values,
            4 * columns,
            blocks.whole_rows(count),
            columns,
            num_keys,
        )
    for r in range(count):
        line = jit.floats_at(room.answer + 4 * r * columns)
        token, q_head = item.token + r // group, item.head * group + r % group
        share = numba.float32(1.0) / sums[r] if item.end > 0 else numba.float32(0.0)
        for i in range(call.size):
            line[i] *= share
        if call.has_gate:
            gate = call.num_heads + 2 * call.kv_heads + q_head
            _open(call, given, token, gate, line, head)
        jit.narrow(given.y, token, q_head, line, call.size)


@jit.function
def _store(call: Any, given: Any, head: Any, number: Any) -> Any:
    """The item, whose new keys and values are in the pool."""
    row, own = number // call.kv_heads, number % call.kv_heads
    first, length = row * call.width, jit.ints_at(call.lengths)[row]
    places, end = jit.ints_at(call.store), length
    line = jit.floats_at(head.ctypes.data)
    for token in range(first, first + call.width):
        if places[token] >= call.page_tokens:
            _turn(call, given, given.k_norm, token, call.num_heads + own, head)
            jit.narrow(given.pool, places[token], own, line, call.size)
            value = call.num_heads + call.kv_heads + own
            jit.widen(line, given.x, token, value, call.size)
            jit.narrow(given.pool, places[token], call.kv_heads + own, line, call.size)
            end += 1
    begin = 0
    if call.first != 0:
        begin = max(0, min(jit.ints_at(call.first)[row], end - 1))
    return _Item(row, own, first, length, begin, end)


@jit.function
def _turn(call: Any, given: Any, weight: Any, token: Any, number: Any, head: Any) -> None:
    """A head of q or k at the head of `head`: normed and rotated, rounded as x after either."""
    line = jit.floats_at(head.ctypes.data)
    if weight[0] != 0:
        norm.normed(given.x, weight, token, number, call.size, jit.number(call.eps), head)
        jit.round_as(given.x, line, call.size)
    else:
        jit.widen(line, given.x, token, number, call.size)
    half = call.rotary_dim // 2
    at = 4 * jit.ints_at(call.positions)[token] * call.rotary_dim
    cos, sin = jit.floats_at(call.cos + at), jit.floats_at(call.sin + at)
    for i in range(half):
        low, high = line[i], line[half + i]
        line[i] = low * cos[i] + high * sin[i]
        line[half + i] = high * cos[half + i] + low * sin[half + i]
    jit.round_as(given.x, line, call.size)


@jit.function
def _gather(call: Any, given: Any, room: Any, item: Any, first: Any, count: Any) -> None:
    """Keys and values from position `first` on."""
    columns = blocks.whole_columns(call.size)
    for s in range(count):
        place = _place(call, item, first + s)
        key = jit.floats_at(room.keys + 4 * s * call.size)
        value = jit.floats_at(room.values + 4 * s * columns)
        jit.widen(key, given.pool, place, item.head, call.size)
        jit.widen(value, given.pool, place, call.kv_heads + item.head, call.size)


@jit.function
def _place(call: Any, item: Any, position: Any) -> Any:
    pages = jit.int32s_at(call.pages + 4 * item.row * call.num_columns)
    page = numba.int64(pages[position // call.page_tokens])
    return page * call.page_tokens + position % call.page_tokens


@jit.function
def _weigh(call: Any, room: Any, item: Any, first: Any, num_keys: Any) -> None:
    """The weights of a block's keys for each query, relative to the largest so far; the sums, and
    the answer so far, are made relative to it too."""
    group, columns = call.num_heads // call.kv_heads, blocks.whole_columns(call.size)
    count, size = call.width * group, call.size
    keys, queries = jit.floats_at(room.keys), jit.floats_at(room.queries)
    tops, sums = jit.floats_at(room.tops), jit.floats_at(room.sums)
    for r in range(0, count, 4):
        weights = jit.floats_at(room.weights + 4 * r * _KEYS)
        at = r * size
        for s in range(0, num_keys, 2):
            other = min(s + 1, num_keys - 1)
            left, right = dots.pair_of_four(
                keys,
                s * size,
                other * size,
                queries,
                at,
                at + size,
                at + 2 * size,
                at + 3 * size,
                size,
            )
            for m in range(4):
                weights[m * _KEYS + s] = left[m]
                weights[m * _KEYS + other] = right[m]
    for r in range(count):
        weights = jit.floats_at(room.weights + 4 * r * _KEYS)
        seen = min(item.length + r // group + 1, item.end) - first
        seen = max(0, min(seen, num_keys))
        top = tops[r]
        for s in range(seen):
            top = max(top, weights[s])
        total = numba.float32(0.0)
        for s in range(seen):
            weights[s] = jit.exp(weights[s] - top)
            total += weights[s]
        for s in range(seen, num_keys):
            weights[s] = numba.float32(0.0)
        if first > item.begin and top > tops[r]:
            before = jit.exp(tops[r] - top)
            answer = jit.floats_at(room.answer + 4 * r * columns)
            for i in range(size):
                answer[i] *= before
            sums[r] *= before
        tops[r] = top
        sums[r] += total


@jit.function
def _open(call: Any, given: Any, token: Any, number: Any, line: Any, head: Any) -> None:
    """line times the sigmoid of a gate."""
    gates = jit.floats_at(head.ctypes.data)
    jit.widen(gates, given.x, token, number, call.size)
    for i in range(call.size):
        line[i] *= jit.sigmoid(gates[i])
