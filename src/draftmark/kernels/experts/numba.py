"""route, experts and mixture compiled, for few tokens, on plain weights in bf16 or fp32.

A mixture is one kernel of five parts, between which its threads wait for one another: x is widened,
by token; the router's logits, by experts; their choice, by token; gate, up and their act, by expert
and features; down and the weighted sum, by columns. `experts` is the same without the second and
the third. The weights of an expert that was hit are read once for all of its tokens; the shared one
is an expert that all tokens hit. Mixtures of more than `FEW_ROWS` are those of `tiled`, where that
can run; otherwise tokens that are not few (see `few`) are the backend `torch`'s.
Legend: a slot is token * top_k + place.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from draftmark.kernels import dots, jit
from draftmark.kernels.experts import composed, tiled
from draftmark.kernels.experts import torch as plain
from draftmark.kernels.experts.few import are_few
from draftmark.kernels.experts.parts import (
    COUNTERS,
    INPUTS,
    call_of,
    choose,
    choose_experts,
    grouped,
    run,
    score,
    widen_rows,
)
from draftmark.kernels.experts.weights import Mixture, Shared

# Of an item. Half of it reads weights more slowly (16 experts of 0.5 MB, one row: 91 and 79 us).
_FEATURES, _COLUMNS = 32, 64
# From so many comparisons on, one core is slower than waking the others.
_SHARED_ROUTE = 1 << 14
# Tiles take more rows. With one thread, of 16 experts of 0.5 MB, top 4, 5 rows took 416 us here and
# 547 by tiles, 16 rows 940 and 527; 64 by `torch` 10600 and 730, 1024 36200 and 6750.
FEW_ROWS = 8


def route(logits: Tensor, top_k: int, renormalise: bool) -> tuple[Tensor, Tensor]:
    num_tokens, num_experts = logits.shape
    ids = torch.empty(num_tokens, top_k, dtype=torch.int64)
    weights = torch.empty(num_tokens, top_k)
    _route(
        num_tokens,
        num_experts,
        top_k,
        renormalise,
        *jit.words_of(logits),
        ids.data_ptr(),
        weights.data_ptr(),
        is_shared=logits.numel() * top_k > _SHARED_ROUTE,
    )
    return ids, weights


def experts(x: Tensor, ids: Tensor, weights: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
    if not are_few(ids.numel(), prepared[0]):
        return plain.experts(x, ids, weights, prepared)
    chosen = (ids.contiguous(), weights.contiguous())
    return run(_mix, _act_sizes(prepared, None), x, prepared, ids.shape[1], chosen=chosen)


def mixture(x: Tensor, own: Mixture, residual: Tensor | None) -> Tensor:
    if len(x) > FEW_ROWS and tiled.can_run(x, own):
        return tiled.mixture(x, own, residual)
    if not are_few(len(x) * own.top_k, own.prepared[0]):
        return composed.mixture(
            x, own, residual, route=route, experts=plain.experts, expert=plain.expert
        )
    sizes = _act_sizes(own.prepared, own.shared)
    return run(_mix, sizes, x, own.prepared, own.top_k, own=own, residual=residual)


def _act_sizes(prepared: tuple[Tensor, ...], shared: Shared | None) -> tuple[int, int]:
    """Of a slot, and of a token by the shared expert."""
    return prepared[1].shape[2], 0 if shared is None else shared.down.shape[1]


@jit.Kernel
def _route(words: Any) -> None:
    """An item is a token."""
    num_experts, top_k, renormalise = words[2], words[3], words[4]
    logits = jit.rows(words, 5)
    ids, weights = jit.ints_at(words[9]), jit.floats_at(words[10])
    values = np.empty(num_experts, np.float32)
    is_free = np.empty(num_experts, np.bool_)
    token = jit.take(words)
    while token < words[1]:
        for expert in range(num_experts):
            values[expert] = jit.read(logits, token, expert)
        choose(values, is_free, ids, weights, token * top_k, top_k, renormalise)
        token = jit.take(words)


@jit.Kernel
def _mix(words: Any) -> None:
    call = call_of(words)
    widen_rows(words, call)
    jit.wait(call.barrier)
    if call.router != 0:
        score(words, call)
        jit.wait(call.barrier)
        choose_experts(words, call)
        jit.wait(call.barrier)
    hits, starts, slots = grouped(call)
    everyone = np.arange(call.num_tokens)
    if call.is_half:
        weights = (
            jit.halves_at(call.gate_up),
            jit.halves_at(call.down),
            jit.halves_at(call.shared_gate_up),
            jit.halves_at(call.shared_down),
        )
        _act(words, call, weights, hits, starts, slots, everyone)
        jit.wait(call.barrier)
        _answer(words, call, weights, hits, starts, slots, everyone)
    else:
        wide_weights = (
            jit.floats_at(call.gate_up),
            jit.floats_at(call.down),
            jit.floats_at(call.shared_gate_up),
            jit.floats_at(call.shared_down),
        )
        _act(words, call, wide_weights, hits, starts, slots, everyone)
        jit.wait(call.barrier)
        _answer(words, call, wide_weights, hits, starts, slots, everyone)


@jit.function
def _act(
    words: Any, call: Any, weights: Any, hits: Any, starts: Any, slots: Any, everyone: Any
) -> None:
    """An item is a block of features of an expert that was hit, then of the shared one."""
    num_blocks = (call.size + _FEATURES - 1) // _FEATURES
    num_own = len(hits) * num_blocks
    num_items = num_own + (call.shared_size + _FEATURES - 1) // _FEATURES
    rows, acts = jit.floats_at(call.rows), jit.floats_at(call.acts)
    shared_acts = jit.floats_at(call.shared_acts)
    item = jit.take_by(words, COUNTERS + 3)
    while item < num_items:
        if item < num_own:
            hit, block = item // num_blocks, item % num_blocks
            first = hits[hit] * 2 * call.size * call.hidden_size
            chosen = slots[starts[hit] : starts[hit + 1]]
            sizes = (call.top_k, call.size, call.hidden_size)
            _act_block(weights[0], first, sizes, block, chosen, rows, acts)
        else:
            sizes = (1, call.shared_size, call.hidden_size)
            _act_block(weights[2], 0, sizes, item - num_own, everyone, rows, shared_acts)
        item = jit.take_by(words, COUNTERS + 3)


@jit.function
def _act_block(
    gate_up: Any, first_weight: Any, sizes: Any, block: Any, chosen: Any, rows: Any, act: Any
) -> None:
    """sizes: top_k, features, inputs."""
    top_k, size, hidden_size = sizes
    for i in range(block * _FEATURES, min(size, (block + 1) * _FEATURES)):
        gate = first_weight + i * hidden_size
        up = gate + size * hidden_size
        dots.ask_ahead(gate_up, gate, hidden_size)
        dots.ask_ahead(gate_up, up, hidden_size)
        first = 0
        while first < len(chosen):
            count = min(4, len(chosen) - first)
            x, y, z, w = _four_of(chosen, first, count)
            if count >= dots.FILLED_UP:
                both = dots.pair_of_four(
                    gate_up,
                    gate,
                    up,
                    rows,
                    x // top_k * hidden_size,
                    y // top_k * hidden_size,
                    z // top_k * hidden_size,
                    w // top_k * hidden_size,
                    hidden_size,
                )
                for n in range(count):
                    value = dots.silu_mul(both[0][n], both[1][n])
                    act[chosen[first + n] * size + i] = dots.rounded(value, gate_up)
                first += count
            else:
                one = dots.pair(gate_up, gate, up, rows, x // top_k * hidden_size, hidden_size)
                act[x * size + i] = dots.rounded(dots.silu_mul(one[0], one[1]), gate_up)
                first += 1


@jit.function
def _answer(
    words: Any, call: Any, weights: Any, hits: Any, starts: Any, slots: Any, everyone: Any
) -> None:
    """An item is a block of columns: each token's answers, in the order of the experts."""
    residual, y = jit.rows(words, INPUTS + 4), jit.rows(words, INPUTS + 8)
    shares, openings = jit.floats_at(call.weights), jit.floats_at(call.openings)
    acts, shared_acts = jit.floats_at(call.acts), jit.floats_at(call.shared_acts)
    sums = np.empty((call.num_tokens, _COLUMNS), np.float32)
    block = jit.take_by(words, COUNTERS + 4)
    while block * _COLUMNS < call.hidden_size:
        column = block * _COLUMNS
        count = min(_COLUMNS, call.hidden_size - column)
        for token in range(call.num_tokens):
            line = jit.floats_at(sums[token].ctypes.data)
            if residual[0] != 0:
                jit.widen(line, residual, token, column, count)
            else:
                for i in range(count):
                    line[i] = numba.float32(0.0)
        if call.gate != 0:
            sizes = (1, call.shared_size, count)
            first = column * call.shared_size
            _add_block(weights[3], first, sizes, everyone, shared_acts, openings, sums)
        for hit in range(len(hits)):
            chosen = slots[starts[hit] : starts[hit + 1]]
            sizes = (call.top_k, call.size, count)
            first = (hits[hit] * call.hidden_size + column) * call.size
            _add_block(weights[1], first, sizes, chosen, acts, shares, sums)
        for token in range(call.num_tokens):
            jit.narrow(y, token, column, jit.floats_at(sums[token].ctypes.data), count)
        block = jit.take_by(words, COUNTERS + 4)


@jit.function
def _add_block(
    down: Any, first_weight: Any, sizes: Any, chosen: Any, act: Any, weights: Any, sums: Any
) -> None:
    """sizes: top_k, features, columns."""
    top_k, size, num_columns = sizes
    for left in range(0, num_columns, 2):
        right = min(left + 1, num_columns - 1)
        a, b = first_weight + left * size, first_weight + right * size
        dots.ask_ahead(down, a, 2 * size)
        first = 0
        while first < len(chosen):
            count = min(4, len(chosen) - first)
            x, y, z, w = _four_of(chosen, first, count)
            if count >= dots.FILLED_UP:
                both = dots.pair_of_four(
                    down, a, b, act, x * size, y * size, z * size, w * size, size
                )
                for n in range(count):
                    slot = chosen[first + n]
                    sums[slot // top_k, left] += weights[slot] * both[0][n]
                    if right > left:
                        sums[slot // top_k, right] += weights[slot] * both[1][n]
                first += count
            else:
                one = dots.pair(down, a, b, act, x * size, size)
                sums[x // top_k, left] += weights[x] * one[0]
                if right > left:
                    sums[x // top_k, right] += weights[x] * one[1]
                first += 1


@jit.function
def _four_of(slots: Any, first: Any, count: Any) -> Any:
    """The next `count` slots, the last of them repeated."""
    last = first + count - 1
    return (
        slots[first],
        slots[min(first + 1, last)],
        slots[min(first + 2, last)],
        slots[last],
    )
