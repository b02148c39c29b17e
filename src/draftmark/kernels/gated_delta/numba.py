"""gated_delta's verify rows, compiled: a value head of a row at a time, every state read once.

The new tokens of a row come one after another, and each sees the checkpoint, the records and those
before it: the recurrence without a state between. Prompts are in `chunks.py`. Addresses are of
float32 numbers, and sums of gates are float64, for the reason that `torch.py` names.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from draftmark.kernels import jit
from draftmark.kernels.gated_delta.cache import FOLD_TOKENS, DeltaCache

# From so many numbers on, one core is slower than waking the others.
SHARED_STATE, _SHARED_GATES = 1 << 14, 1 << 10
GATE_FLOOR = -100.0


def gates(a: Tensor, b: Tensor, decay: Tensor, dt_bias: Tensor) -> tuple[Tensor, Tensor]:
    num_tokens, num_heads = a.shape
    g, beta = torch.empty(num_tokens, num_heads), torch.empty(num_tokens, num_heads)
    _gates(
        num_tokens,
        num_heads,
        *(*jit.words_of(a), *jit.words_of(b), *jit.words_of(g), *jit.words_of(beta)),
        *(decay.data_ptr(), jit.is_half(decay), 0, decay.stride(0)),
        *(dt_bias.data_ptr(), jit.is_half(dt_bias), 0, dt_bias.stride(0)),
        is_shared=a.numel() >= _SHARED_GATES,
    )
    return g, beta


def verify(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    cache: DeltaCache,
    slots: Tensor,
    lengths: Tensor,
    folds: Tensor,
    width: int,
) -> Tensor:
    q, k, v = (x if x.stride(2) == 1 else x.contiguous() for x in (q, k, v))
    num_heads, key_dim, value_dim = cache.state.shape[1:]
    out = torch.empty_like(v)
    _verify(
        len(slots) * num_heads,
        *words_of(cache, slots, lengths, folds, width),
        *(*jit.words_of(q), *jit.words_of(k), *jit.words_of(v)),
        *(*jit.words_of(g), *jit.words_of(beta), *jit.words_of(out)),
        is_shared=len(slots) * num_heads * key_dim * value_dim > SHARED_STATE,
    )
    return out


def words_of(
    cache: DeltaCache, slots: Tensor, lengths: Tensor, folds: Tensor, width: int
) -> tuple[int, ...]:
    """For `call_of`."""
    if cache.state.dtype != torch.float32:
        raise TypeError(f"compiled kernels keep states in float32, not {cache.state.dtype}")
    num_heads, key_dim, value_dim = cache.state.shape[1:]
    return (
        *(num_heads, cache.keys.shape[2], key_dim, value_dim, width, cache.num_records),
        *(jit.ints_of(slots), jit.ints_of(lengths), jit.ints_of(folds)),
        *(cache.state.data_ptr(), cache.keys.data_ptr()),
        *(cache.deltas.data_ptr(), cache.gates.data_ptr()),
    )


class Call(NamedTuple):
    """What follows the number of items: sizes, then addresses, then rows from `INPUTS` on."""

    num_heads: int
    key_heads: int
    key_dim: int
    value_dim: int
    width: int
    depth: int
    slots: int
    lengths: int
    folds: int
    state: int
    keys: int
    deltas: int
    gates: int


INPUTS = 15


class _Item(NamedTuple):
    """A value head of a row; `num_records` of its tokens are records. Addresses of a thread's own:
    the sums of gates since the checkpoint, k and q of each new token, what one of them has seen by
    k and by q, and the gathered keys and deltas of a fold."""

    row: int
    head: int
    key_head: int
    slot: int
    length: int
    num_records: int
    total: int
    pairs: int
    seen: int
    gathered: int


@jit.Kernel
def _gates(words: Any) -> None:
    """An item is a token."""
    a, b, g, beta = (
        jit.rows(words, 3),
        jit.rows(words, 7),
        jit.rows(words, 11),
        jit.rows(words, 15),
    )
    decay, dt_bias = jit.rows(words, 19), jit.rows(words, 23)
    token = jit.take(words)
    while token < words[1]:
        for head in range(words[2]):
            x = jit.read(a, token, head) + jit.read(dt_bias, 0, head)
            jit.write(g, token, head, -jit.read(decay, 0, head) * softplus(x))
            jit.write(beta, token, head, jit.sigmoid(jit.read(b, token, head)))
        token = jit.take(words)


@jit.function
def softplus(x: Any) -> Any:
    above = numba.float32(0.0) if x < 0 else x
    return above + numba.float32(math.log1p(jit.exp(-abs(x))))


@jit.Kernel
def _verify(words: Any) -> None:
    call = call_of(words)
    inputs = (
        jit.rows(words, INPUTS),
        jit.rows(words, INPUTS + 4),
        jit.rows(words, INPUTS + 8),
        jit.rows(words, INPUTS + 12),
        jit.rows(words, INPUTS + 16),
    )
    out = jit.rows(words, INPUTS + 20)
    scratch = np.empty(scratch_size(call), np.float64)
    number = jit.take(words)
    while number < words[1]:
        ask_for(call, number)
        # Not its address: the array must live until the last call.
        run_item(call, inputs, out, scratch, number)
        number = jit.take(words)


@jit.function
def scratch_size(call: Any) -> Any:
    floats = 2 * call.width * call.key_dim + 2 * call.value_dim
    floats += FOLD_TOKENS * (call.key_dim + call.value_dim)
    return FOLD_TOKENS + call.width + floats // 2


@jit.function
def call_of(words: Any) -> Any:
    return Call(
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
    )


@jit.function
def run_item(call: Any, inputs: Any, out: Any, scratch: Any, number: Any) -> None:
    row, head = number // call.num_heads, number % call.num_heads
    slot, length = jit.ints_at(call.slots)[row], jit.ints_at(call.lengths)[row]
    key_head, count = head // (call.num_heads // call.key_heads), length % FOLD_TOKENS
    total = scratch.ctypes.data
    pairs = total + 8 * (FOLD_TOKENS + call.width)
    seen = pairs + 8 * call.width * call.key_dim
    gathered = seen + 8 * call.value_dim
    item = _Item(row, head, key_head, slot, length, count, total, pairs, seen, gathered)
    earlier = length - jit.ints_at(call.folds)[row]
    for first in range(earlier - earlier % FOLD_TOKENS, length - count, FOLD_TOKENS):
        _fold(call, item, first)
    running = _sum_gates(call, item, length - count, count)
    for j in range(call.width):
        running = _add_key(call, item, inputs, j, running)
        _see_state(call, item, j)
        for i in range(count + j):
            _see_record(call, item, j, i)
        _finish(call, item, inputs, out, j)


@jit.function
def ask_for(call: Any, number: Any) -> None:
    """Have the records of an item brought near, and the first lines of its state."""
    row, head = number // call.num_heads, number % call.num_heads
    slot, length = jit.ints_at(call.slots)[row], jit.ints_at(call.lengths)[row]
    key_head, count = head // (call.num_heads // call.key_heads), length % FOLD_TOKENS
    item = _Item(row, head, key_head, slot, length, count, 0, 0, 0, 0)
    jit.prefetch(_line_at(call, item, 0), jit.AHEAD_BYTES)
    for position in range(length - count, length):
        jit.prefetch(jit.address_of(_key_at(call, item, position)), 4 * call.key_dim)
        jit.prefetch(jit.address_of(_delta_at(call, item, position)), 4 * call.value_dim)


@jit.function
def _place(call: Any, item: Any, position: Any) -> Any:
    return item.slot * call.depth + position % call.depth


@jit.function
def _key_at(call: Any, item: Any, position: Any) -> Any:
    place = _place(call, item, position) * call.key_heads + item.key_head
    return jit.floats_at(call.keys + 4 * place * call.key_dim)


@jit.function
def _delta_at(call: Any, item: Any, position: Any) -> Any:
    place = _place(call, item, position) * call.num_heads + item.head
    return jit.floats_at(call.deltas + 4 * place * call.value_dim)


@jit.function
def _gate_at(call: Any, item: Any, position: Any) -> Any:
    place = _place(call, item, position) * call.num_heads + item.head
    return jit.floats_at(call.gates + 4 * place)


@jit.function
def _line_at(call: Any, item: Any, d: Any) -> Any:
    """The address of line d of the state, [Dv]."""
    line = (item.slot * call.num_heads + item.head) * call.key_dim + d
    return call.state + 4 * line * call.value_dim


@jit.function
def _pair_at(call: Any, item: Any, j: Any) -> Any:
    """k and q of new token j."""
    k = item.pairs + 8 * j * call.key_dim
    return jit.floats_at(k), jit.floats_at(k + 4 * call.key_dim)


@jit.function
def _seen_at(call: Any, item: Any) -> Any:
    return jit.floats_at(item.seen), jit.floats_at(item.seen + 4 * call.value_dim)


@jit.function
def _sum_gates(call: Any, item: Any, first: Any, count: Any) -> Any:
    running, total = 0.0, jit.doubles_at(item.total)
    for i in range(count):
        running += _gate_at(call, item, first + i)[0]
        total[i] = running
    return running


@jit.function
def _fold(call: Any, item: Any, first: Any) -> None:
    """The state moves on by the FOLD_TOKENS records from position `first`."""
    running = _sum_gates(call, item, first, FOLD_TOKENS)
    total, keys = jit.doubles_at(item.total), jit.floats_at(item.gathered)
    deltas = item.gathered + 4 * FOLD_TOKENS * call.key_dim
    for i in range(FOLD_TOKENS):
        key, delta = _key_at(call, item, first + i), _delta_at(call, item, first + i)
        leaving = jit.exp(numba.float32(running - total[i]))
        for d in range(call.key_dim):
            keys[i * call.key_dim + d] = leaving * key[d]
        kept = jit.floats_at(deltas + 4 * i * call.value_dim)
        for e in range(call.value_dim):
            kept[e] = delta[e]
    decay = jit.exp(numba.float32(running))
    for d in range(call.key_dim):
        line = jit.floats_at(_line_at(call, item, d))
        for e in range(call.value_dim):
            line[e] *= decay
        for i in range(0, FOLD_TOKENS, 4):
            x0, x1, x2, x3 = _four(deltas + 4 * i * call.value_dim, call.value_dim)
            k0, k1 = keys[i * call.key_dim + d], keys[(i + 1) * call.key_dim + d]
            k2, k3 = keys[(i + 2) * call.key_dim + d], keys[(i + 3) * call.key_dim + d]
            for e in range(call.value_dim):
                line[e] += (k0 * x0[e] + k1 * x1[e]) + (k2 * x2[e] + k3 * x3[e])


@jit.function
def _four(address: Any, size: Any) -> Any:
    """Four vectors one after another: passes over a sum cost as much as what is added."""
    return (
        jit.floats_at(address),
        jit.floats_at(address + 4 * size),
        jit.floats_at(address + 8 * size),
        jit.floats_at(address + 12 * size),
    )


@jit.function
def _add_key(call: Any, item: Any, inputs: Any, j: Any, running: Any) -> Any:
    """Normalised k and q of new token j, its gate's and, by one head, its key's record; the running
    sum of gates after it."""
    (k, q), token = _pair_at(call, item, j), item.row * call.width + j
    unit(k, inputs[1], token, item.key_head, call.key_dim, 1.0)
    unit(q, inputs[0], token, item.key_head, call.key_dim, call.key_dim**-0.5)
    gate = jit.read(inputs[3], token, item.head)
    gate = numba.float32(GATE_FLOOR) if gate < GATE_FLOOR else gate
    _gate_at(call, item, item.length + j)[0] = gate
    if item.head % (call.num_heads // call.key_heads) == 0:
        key = _key_at(call, item, item.length + j)
        for d in range(call.key_dim):
            key[d] = k[d]
    jit.doubles_at(item.total)[item.num_records + j] = running + gate
    return running + gate


@jit.function
def unit(out: Any, x: Any, token: Any, head: Any, size: Any, scale: Any) -> None:
    jit.widen(out, x, token, head, size)
    squares = numba.float32(_dot(out, out, size) + numba.float32(1e-6))
    by = numba.float32(scale) / numba.float32(math.sqrt(squares))
    for d in range(size):
        out[d] *= by


@jit.function
def _see_state(call: Any, item: Any, j: Any) -> None:
    """What the checkpoint says to k and q of new token j."""
    (k, q), (of_k, of_q) = _pair_at(call, item, j), _seen_at(call, item)
    for e in range(call.value_dim):
        of_k[e] = of_q[e] = numba.float32(0.0)
    whole = call.key_dim - call.key_dim % 4
    for d in range(0, whole, 4):
        line = _line_at(call, item, d)
        if j == 0:
            jit.prefetch(line + jit.AHEAD_BYTES, 16 * call.value_dim)
        x0, x1, x2, x3 = _four(line, call.value_dim)
        k0, k1, k2, k3 = k[d], k[d + 1], k[d + 2], k[d + 3]
        q0, q1, q2, q3 = q[d], q[d + 1], q[d + 2], q[d + 3]
        for e in range(call.value_dim):
            of_k[e] += (k0 * x0[e] + k1 * x1[e]) + (k2 * x2[e] + k3 * x3[e])
            of_q[e] += (q0 * x0[e] + q1 * x1[e]) + (q2 * x2[e] + q3 * x3[e])
    for d in range(whole, call.key_dim):
        _add(of_k, of_q, k[d], q[d], jit.floats_at(_line_at(call, item, d)), call.value_dim)
    decay = jit.exp(numba.float32(jit.doubles_at(item.total)[item.num_records + j]))
    for e in range(call.value_dim):
        of_k[e] *= decay
        of_q[e] *= decay


@jit.function
def _see_record(call: Any, item: Any, j: Any, i: Any) -> None:
    """What token i since the checkpoint, a record or a new one, says to new token j."""
    (k, q), (of_k, of_q) = _pair_at(call, item, j), _seen_at(call, item)
    position = item.length - item.num_records + i
    if i < item.num_records:
        key = _key_at(call, item, position)
    else:  # another head may be writing its record
        key = _pair_at(call, item, i - item.num_records)[0]
    total = jit.doubles_at(item.total)
    since = jit.exp(numba.float32(total[item.num_records + j] - total[i]))
    by_k, by_q = since * _dot(key, k, call.key_dim), since * _dot(key, q, call.key_dim)
    _add(of_k, of_q, by_k, by_q, _delta_at(call, item, position), call.value_dim)


@jit.function
def _finish(call: Any, item: Any, inputs: Any, out: Any, j: Any) -> None:
    """d, its record, and o of new token j."""
    (k, q), (of_k, of_q) = _pair_at(call, item, j), _seen_at(call, item)
    token, delta = item.row * call.width + j, _delta_at(call, item, item.length + j)
    beta, own = jit.read(inputs[4], token, item.head), _dot(k, q, call.key_dim)
    jit.widen(delta, inputs[2], token, item.head, call.value_dim)
    for e in range(call.value_dim):
        delta[e] = beta * (delta[e] - of_k[e])
        of_q[e] += own * delta[e]
    jit.narrow(out, token, item.head, of_q, call.value_dim)


@jit.function
def _add(of_k: Any, of_q: Any, by_k: Any, by_q: Any, x: Any, size: Any) -> None:
    for e in range(size):
        of_k[e] += by_k * x[e]
        of_q[e] += by_q * x[e]


@jit.function
def _dot(x: Any, y: Any, size: Any) -> Any:
    total = numba.float32(0.0)
    for i in range(size):
        total += x[i] * y[i]
    return total
