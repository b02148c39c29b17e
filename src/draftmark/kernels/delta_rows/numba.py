"""delta_rows compiled: a value head of a row at a time, from its convolution to its gated norm.

The value heads of a key head each make its q and k again: that is cheaper than to wait for one
another. What the parts are is in the ops of their names; here their results pass in float32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from draftmark.kernels import jit
from draftmark.kernels.causal_conv import numba as conv
from draftmark.kernels.delta_rows.weights import DeltaWeights
from draftmark.kernels.gated_delta import DeltaCache
from draftmark.kernels.gated_delta import numba as rule
from draftmark.kernels.norm import numba as norm


def verify(
    x: Tensor,
    weights: DeltaWeights,
    ring: Tensor,
    cache: DeltaCache,
    slots: Tensor,
    lengths: Tensor,
    folds: Tensor,
    width: int,
) -> Tensor:
    num_heads, key_dim, value_dim = cache.state.shape[1:]
    taps, decay, dt_bias = weights.taps, weights.decay, weights.dt_bias
    assert x.stride(1) == 1 and taps.stride(0) == 1 and ring.is_contiguous()
    if any(jit.is_half(wide) for wide in (taps, decay, dt_bias)):
        raise TypeError("the taps, the decay and the bias of its step are in float32")
    y = torch.empty(len(x), num_heads * value_dim, dtype=x.dtype)
    _verify(
        len(slots) * num_heads,
        *rule.words_of(cache, slots, lengths, folds, width),
        *jit.words_of(x),
        *jit.words_of(y),
        *(ring.data_ptr(), jit.is_half(ring), ring.stride(1), 1),
        *(taps.data_ptr(), 0, taps.stride(1), 1),
        *(decay.data_ptr(), dt_bias.data_ptr()),
        *(weights.norm.data_ptr(), jit.is_half(weights.norm)),
        *(jit.word_of(weights.eps), weights.activation == "silu"),
        *(taps.shape[1], ring.shape[1]),
        is_shared=len(slots) * num_heads * key_dim * value_dim > rule.SHARED_STATE,
    )
    return y


class _Net(NamedTuple):
    """What does not differ between items, besides the delta rule's own: `x`, `ring` and `taps` are
    rows, decay and dt_bias addresses of float32 numbers."""

    x: Any
    ring: Any
    taps: Any
    decay: int
    dt_bias: int
    num_taps: int
    depth: int


class _Room(NamedTuple):
    """Addresses of a thread's own: q, k, v and o of each new token, g and beta, and scratch."""

    q: int
    k: int
    v: int
    out: int
    gates: int
    scratch: int


@jit.Kernel
def _verify(words: Any) -> None:
    """An item is a value head of a row."""
    call, at = rule.call_of(words), rule.INPUTS
    x, y = jit.rows(words, at), jit.rows(words, at + 4)
    net = _Net(
        x,
        jit.rows(words, at + 8),
        jit.rows(words, at + 12),
        words[at + 16],
        words[at + 17],
        words[at + 22],
        words[at + 23],
    )
    key_size, value_size = 4 * call.width * call.key_dim, 4 * call.width * call.value_dim
    own = np.empty(
        2 * call.width * (call.key_dim + call.value_dim + 1)
        + 3 * max(call.key_dim, call.value_dim),
        np.float32,
    )
    of_rule = np.empty(rule.scratch_size(call), np.float64)
    of_norm = np.empty(2 * call.value_dim, np.float32)
    values = call.num_heads * call.value_dim
    z = 2 * call.key_heads * call.key_dim + values
    number = jit.take(words)
    while number < words[1]:
        rule.ask_for(call, number)
        base = own.ctypes.data
        room = _Room(
            base,
            base + key_size,
            base + 2 * key_size,
            base + 2 * key_size + value_size,
            base + 2 * (key_size + value_size),
            base + 2 * (key_size + value_size) + 8 * call.width,
        )
        _prepare(call, net, room, number, z + values)
        row, head = number // call.num_heads, number % call.num_heads
        first = row * call.width
        inputs = (
            _own_rows(room.q, first, call.key_dim),
            _own_rows(room.k, first, call.key_dim),
            _own_rows(room.v, first, call.value_dim),
            _own_rows(room.gates, first, 1),
            _own_rows(room.gates + 4 * call.width, first, 1),
        )
        out = _own_rows(room.out, first, call.value_dim)
        rule.run_item(call, inputs, out, of_rule, number)
        for token in range(first, first + call.width):
            o = jit.floats_at(room.out + 4 * (token - first) * call.value_dim)
            jit.round_as(x, o, call.value_dim)
            weight = (words[at + 18], words[at + 19], 0, 0)
            eps = jit.number(words[at + 20])
            norm.normed(out, weight, token, 0, call.value_dim, eps, of_norm)
            gate = (x[0] + (4 - 2 * x[1]) * z, x[1], x[2], call.value_dim)
            to = (y[0], y[1], y[2], call.value_dim)
            norm.opened(to, gate, token, head, call.value_dim, words[at + 21], of_norm)
        number = jit.take(words)


@jit.function
def _own_rows(address: Any, first: Any, size: Any) -> Any:
    """Rows of float32 that are there from number `first` on alone, the same for all heads."""
    return address - 4 * first * size, 0, size, 0


@jit.function
def _prepare(call: Any, net: Any, room: Any, number: Any, last: Any) -> None:
    """q, k, v, g and beta of an item's new tokens; of several heads with the same q and k one keeps
    their inputs. `last` is the channel where b begins."""
    row, head = number // call.num_heads, number % call.num_heads
    slot, length = jit.ints_at(call.slots)[row], jit.ints_at(call.lengths)[row]
    tokens = conv.Tokens(row * call.width, call.width, slot * net.depth, net.depth, length)
    group = call.num_heads // call.key_heads
    key = head // group * call.key_dim
    keys = call.key_heads * call.key_dim
    is_first = head % group == 0
    _mix(net, tokens, room.q, room.scratch, key, call.key_dim, is_first)
    _mix(net, tokens, room.k, room.scratch, keys + key, call.key_dim, is_first)
    value = 2 * keys + head * call.value_dim
    _mix(net, tokens, room.v, room.scratch, value, call.value_dim, True)
    gates = jit.floats_at(room.gates)
    decay, dt_bias = jit.floats_at(net.decay)[head], jit.floats_at(net.dt_bias)[head]
    for j in range(call.width):
        b = jit.read(net.x, tokens.first + j, last + head)
        a = jit.read(net.x, tokens.first + j, last + call.num_heads + head)
        gates[j] = -decay * rule.softplus(a + dt_bias)
        gates[call.width + j] = jit.sigmoid(b)


@jit.function
def _mix(
    net: Any, tokens: Any, out: Any, scratch: Any, first: Any, count: Any, is_kept: Any
) -> None:
    """`count` channels from `first` on of all new tokens."""
    mixed = jit.floats_at(scratch)
    for j in range(tokens.width):
        conv.convolve(net.x, net.taps, net.ring, tokens, j, net.num_taps, first, count, scratch)
        jit.round_as(net.x, mixed, count)
        line = jit.floats_at(out + 4 * j * count)
        for c in range(count):
            line[c] = mixed[c]
    if is_kept:
        conv.keep(net.x, net.ring, tokens, first, count, scratch)
