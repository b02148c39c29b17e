"""route and experts compiled, for few tokens, on plain weights in bf16 or fp32.

An experts call is two kernels: gate, up and their act, shared out by expert and features; down and
the weighted sum, shared out by columns. The weights of an expert that was hit are read once for all
of its tokens. Tokens that are not few (see `few`) are the backend `torch`'s. Legend: a slot is
token * top_k + place.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from draftmark.kernels import dots, jit
from draftmark.kernels.experts import torch as plain
from draftmark.kernels.experts.few import are_few
from draftmark.kernels.experts.joined import joined

# Of an item. Half of it reads weights more slowly (16 experts of 0.5 MB, one row: 91 and 79 us).
_FEATURES, _COLUMNS = 32, 64
# From so many comparisons on, one core is slower than waking the others.
_SHARED_ROUTE = 1 << 14
_NONE = (0, 0, 0, 0)


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


def experts(
    x: Tensor,
    ids: Tensor,
    weights: Tensor,
    prepared: tuple[Tensor, ...],
    shared: tuple[Tensor, Tensor] | None,
    residual: Tensor | None,
) -> Tensor:
    gate_up, down = prepared
    num_slots = ids.numel()
    if not are_few(num_slots, gate_up):
        return joined(plain.experts(x, ids, weights, prepared), shared, residual)
    num_experts, double_size, hidden_size = gate_up.shape
    rows, ids, weights = x.float(), ids.contiguous(), weights.contiguous()
    size, is_half = double_size // 2, jit.is_half(gate_up)
    act = torch.empty(num_slots, size)
    y = torch.empty(x.shape, dtype=x.dtype)
    sizes = (num_slots, ids.shape[1], num_experts, size, hidden_size, jit.ints_of(ids), is_half)
    _acts(
        min(num_experts, num_slots) * -(-size // _FEATURES),
        *sizes,
        gate_up.data_ptr(),
        act.data_ptr(),
        rows.data_ptr(),
        rows.stride(0),
        is_shared=True,
    )
    _answers(
        -(-hidden_size // _COLUMNS),
        *sizes,
        down.data_ptr(),
        act.data_ptr(),
        weights.data_ptr(),
        y.data_ptr(),
        *(_NONE if residual is None else jit.words_of(residual)),
        *(_NONE * 2 if shared is None else jit.words_of(shared[0]) + jit.words_of(shared[1])),
        is_shared=True,
    )
    return y


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
            is_free[expert] = True
        first, total = token * top_k, numba.float32(0.0)
        for slot in range(first, first + top_k):
            expert = _best(values, is_free)
            is_free[expert] = False
            ids[slot] = expert
            weights[slot] = jit.exp(values[expert] - values[ids[first]])
            total += weights[slot]
        if not renormalise:
            for expert in range(num_experts):
                if is_free[expert]:
                    total += jit.exp(values[expert] - values[ids[first]])
        for slot in range(first, first + top_k):
            weights[slot] /= total
        token = jit.take(words)


@jit.function
def _best(values: Any, is_free: Any) -> Any:
    """The largest free one, NaN above all; of equal ones the first."""
    best = -1
    for i in range(len(values)):
        if is_free[i] and (
            best < 0
            or values[i] > values[best]
            or (values[i] != values[i] and not np.isnan(values[best]))
        ):
            best = i
    return best


@jit.Kernel
def _acts(words: Any) -> None:
    """An item is a block of features of an expert that was hit."""
    hits, starts, slots = _grouped(words)
    num_blocks = (words[5] + _FEATURES - 1) // _FEATURES
    num_items = len(hits) * num_blocks
    item = jit.take(words)
    while item < num_items:
        hit, block = item // num_blocks, item % num_blocks
        chosen = slots[starts[hit] : starts[hit + 1]]
        if words[8]:
            _act_block(words, jit.halves_at(words[9]), hits[hit], block, chosen)
        else:
            _act_block(words, jit.floats_at(words[9]), hits[hit], block, chosen)
        item = jit.take(words)


@jit.function
def _act_block(words: Any, gate_up: Any, expert: Any, block: Any, chosen: Any) -> None:
    top_k, size, hidden_size = words[3], words[5], words[6]
    act, rows, stride = jit.floats_at(words[10]), jit.floats_at(words[11]), words[12]
    for i in range(block * _FEATURES, min(size, (block + 1) * _FEATURES)):
        gate = (expert * 2 * size + i) * hidden_size
        up = gate + size * hidden_size
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
                    x // top_k * stride,
                    y // top_k * stride,
                    z // top_k * stride,
                    w // top_k * stride,
                    hidden_size,
                )
                for n in range(count):
                    value = dots.silu_mul(both[0][n], both[1][n])
                    act[chosen[first + n] * size + i] = dots.rounded(value, gate_up)
                first += count
            else:
                one = dots.pair(gate_up, gate, up, rows, x // top_k * stride, hidden_size)
                act[x * size + i] = dots.rounded(dots.silu_mul(one[0], one[1]), gate_up)
                first += 1


@jit.Kernel
def _answers(words: Any) -> None:
    """An item is a block of columns: each token's answers, in the order of the experts."""
    hits, starts, slots = _grouped(words)
    num_tokens, hidden_size = words[2] // words[3], words[6]
    sums = np.empty((num_tokens, _COLUMNS), np.float32)
    block = jit.take(words)
    while block < words[1]:
        _begin_block(words, block, sums)
        for hit in range(len(hits)):
            chosen = slots[starts[hit] : starts[hit + 1]]
            if words[8]:
                _add_block(words, jit.halves_at(words[9]), hits[hit], block, chosen, sums)
            else:
                _add_block(words, jit.floats_at(words[9]), hits[hit], block, chosen, sums)
        column = block * _COLUMNS
        for token in range(num_tokens):
            line = jit.floats_at(sums[token].ctypes.data)
            count = min(_COLUMNS, hidden_size - column)
            jit.narrow((words[12], words[8], hidden_size, 1), token, column, line, count)
        block = jit.take(words)


@jit.function
def _begin_block(words: Any, block: Any, sums: Any) -> None:
    """The residual, and the shared answer through its gate, where there are any."""
    residual, gates, shared = jit.rows(words, 13), jit.rows(words, 17), jit.rows(words, 21)
    column = block * _COLUMNS
    count = min(_COLUMNS, words[6] - column)
    sums[:] = numba.float32(0.0)
    for token in range(len(sums)):
        if residual[0] != 0:
            for i in range(count):
                sums[token, i] = jit.read(residual, token, column + i)
        if shared[0] != 0:
            opening = jit.sigmoid(jit.read(gates, token, 0))
            for i in range(count):
                sums[token, i] += opening * jit.read(shared, token, column + i)


@jit.function
def _add_block(words: Any, down: Any, expert: Any, block: Any, chosen: Any, sums: Any) -> None:
    top_k, size, hidden_size = words[3], words[5], words[6]
    act, weights = jit.floats_at(words[10]), jit.floats_at(words[11])
    begin = block * _COLUMNS
    last = min(hidden_size, begin + _COLUMNS) - 1
    for column in range(begin, last + 1, 2):
        left, right = column - begin, min(column + 1, last) - begin
        a = (expert * hidden_size + column) * size
        b = (expert * hidden_size + min(column + 1, last)) * size
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


@jit.function
def _grouped(words: Any) -> Any:
    """The experts that were hit, where the slots of each begin, and the slots in their order."""
    num_slots, num_experts, ids = words[2], words[4], jit.ints_at(words[7])
    after = np.zeros(num_experts + 1, np.int64)
    for slot in range(num_slots):
        after[ids[slot] + 1] += 1
    hits, starts = np.empty(num_experts, np.int64), np.empty(num_experts + 1, np.int64)
    num_hits = 0
    for expert in range(num_experts):
        if after[expert + 1] > 0:
            hits[num_hits], starts[num_hits] = expert, after[expert]
            num_hits += 1
        after[expert + 1] += after[expert]
    starts[num_hits] = num_slots
    slots = np.empty(num_slots, np.int64)
    for slot in range(num_slots):
        place = after[ids[slot]]
        slots[place] = slot
        after[ids[slot]] = place + 1
    return hits[:num_hits], starts, slots
