"""route, experts and mixture compiled, for few tokens, on plain weights in bf16 or fp32.

A mixture is one kernel of five parts, between which its threads wait for one another: x is widened,
by token; the router's logits, by experts; their choice, by token; gate, up and their act, by expert
and features; down and the weighted sum, by columns. `experts` is the same without the second and
the third. The weights of an expert that was hit are read once for all of its tokens; the shared one
is an expert that all tokens hit. Tokens that are not few (see `few`) are the backend `torch`'s.
Legend: a slot is token * top_k + place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from draftmark.kernels import dots, jit
from draftmark.kernels.experts import composed
from draftmark.kernels.experts import torch as plain
from draftmark.kernels.experts.few import are_few
from draftmark.kernels.experts.weights import Mixture

# Of an item. Half of it reads weights more slowly (16 experts of 0.5 MB, one row: 91 and 79 us).
_FEATURES, _COLUMNS = 32, 64
_ROUTED = 8  # experts of an item of the router, which are few for a row
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


def experts(x: Tensor, ids: Tensor, weights: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
    if not are_few(ids.numel(), prepared[0]):
        return plain.experts(x, ids, weights, prepared)
    chosen = (ids.contiguous(), weights.contiguous())
    return _run(x, prepared, ids.shape[1], chosen=chosen)


def mixture(x: Tensor, own: Mixture, residual: Tensor | None) -> Tensor:
    if not are_few(len(x) * own.top_k, own.prepared[0]):
        return composed.mixture(
            x, own, residual, route=route, experts=plain.experts, expert=plain.expert
        )
    return _run(x, own.prepared, own.top_k, own=own, residual=residual)


def _run(
    x: Tensor,
    prepared: tuple[Tensor, ...],
    top_k: int,
    *,
    chosen: tuple[Tensor, Tensor] | None = None,
    own: Mixture | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """Experts that are `chosen`, or by the router of `own`."""
    gate_up, down = prepared
    num_tokens, (num_experts, double_size, hidden_size) = len(x), gate_up.shape
    size = double_size // 2
    y = torch.empty(x.shape, dtype=x.dtype)
    shared_size, of_shared = 0, [0, 0, 0]
    if own is not None and own.shared is not None:
        shared = own.shared
        shared_size = shared.down.shape[1]
        of_shared = [w.data_ptr() for w in (shared.gate, shared.gate_up, shared.down)]
    # ids in int64, then in float32 rows, acts of all slots, shared acts, logits, weights, openings.
    num_slots = num_tokens * top_k
    counts = (hidden_size, top_k * size, shared_size, num_experts, top_k, 1)
    room = torch.empty(num_slots + (num_tokens * sum(counts) + 1) // 2, dtype=torch.int64)
    addresses, at = [room.data_ptr()], room.data_ptr() + 8 * num_slots
    for count in counts:
        addresses.append(at)
        at += 4 * num_tokens * count
    ids, rows, acts, shared_acts, logits, weights, openings = addresses
    if chosen is not None:
        ids, weights = jit.ints_of(chosen[0]), chosen[1].data_ptr()
    _mix(
        0,
        *(num_tokens, top_k, num_experts, size, hidden_size, jit.is_half(gate_up)),
        *(gate_up.data_ptr(), down.data_ptr(), ids, weights, rows, acts),
        *(0 if own is None else own.router.data_ptr(), logits),
        *(0 if own is None else own.renormalise, *of_shared),
        *(shared_size, shared_acts, openings, jit.BARRIER, *(0,) * _PARTS),
        *jit.words_of(x),
        *(_NONE if residual is None else jit.words_of(residual)),
        *jit.words_of(y),
        is_shared=True,
    )
    return y


class _Call(NamedTuple):
    """What follows the number of items, which is not used: an item is each part's own."""

    num_tokens: int
    top_k: int
    num_experts: int
    size: int
    hidden_size: int
    is_half: int
    gate_up: int
    down: int
    ids: int
    weights: int
    rows: int
    acts: int
    router: int
    logits: int
    renormalise: int
    gate: int
    shared_gate_up: int
    shared_down: int
    shared_size: int
    shared_acts: int
    openings: int
    barrier: int


_PARTS = 5
_COUNTERS = 2 + len(_Call._fields)
_INPUTS = _COUNTERS + _PARTS


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
        _choose(values, is_free, ids, weights, token * top_k, top_k, renormalise)
        token = jit.take(words)


@jit.function
def _choose(
    values: Any, is_free: Any, ids: Any, weights: Any, first: Any, top_k: Any, renormalise: Any
) -> None:
    """The slots of a token from `first` on, by its logits."""
    total = numba.float32(0.0)
    is_free[:] = True
    for slot in range(first, first + top_k):
        expert = _best(values, is_free)
        is_free[expert] = False
        ids[slot] = expert
        weights[slot] = jit.exp(values[expert] - values[ids[first]])
        total += weights[slot]
    if not renormalise:
        for expert in range(len(values)):
            if is_free[expert]:
                total += jit.exp(values[expert] - values[ids[first]])
    for slot in range(first, first + top_k):
        weights[slot] /= total


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
def _mix(words: Any) -> None:
    call = _call_of(words)
    _widen_rows(words, call)
    jit.wait(call.barrier)
    if call.router != 0:
        _score(words, call)
        jit.wait(call.barrier)
        _choose_experts(words, call)
        jit.wait(call.barrier)
    hits, starts, slots = _grouped(call)
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
        words[19],
        words[20],
        words[21],
        words[22],
        words[23],
    )


@jit.function
def _widen_rows(words: Any, call: Any) -> None:
    """An item is a token."""
    x = jit.rows(words, _INPUTS)
    token = jit.take_by(words, _COUNTERS)
    while token < call.num_tokens:
        line = jit.floats_at(call.rows + 4 * token * call.hidden_size)
        jit.widen(line, x, token, 0, call.hidden_size)
        token = jit.take_by(words, _COUNTERS)


@jit.function
def _score(words: Any, call: Any) -> None:
    """An item is some experts, whose logits all tokens get, or the gate of the shared one."""
    num_blocks = (call.num_experts + _ROUTED - 1) // _ROUTED
    size, rows = call.hidden_size, jit.floats_at(call.rows)
    logits, openings = jit.floats_at(call.logits), jit.floats_at(call.openings)
    router, gate = jit.floats_at(call.router), jit.floats_at(call.gate)
    block = jit.take_by(words, _COUNTERS + 1)
    while block < num_blocks + (call.gate != 0):
        if block == num_blocks:
            for token in range(call.num_tokens):
                openings[token] = jit.sigmoid(dots.one(gate, 0, rows, token * size, size))
        else:
            for expert in range(block * _ROUTED, min(call.num_experts, (block + 1) * _ROUTED)):
                for token in range(call.num_tokens):
                    logits[token * call.num_experts + expert] = dots.one(
                        router, expert * size, rows, token * size, size
                    )
        block = jit.take_by(words, _COUNTERS + 1)


@jit.function
def _choose_experts(words: Any, call: Any) -> None:
    """An item is a token."""
    ids, weights, logits = (
        jit.ints_at(call.ids),
        jit.floats_at(call.weights),
        jit.floats_at(call.logits),
    )
    values = np.empty(call.num_experts, np.float32)
    is_free = np.empty(call.num_experts, np.bool_)
    token = jit.take_by(words, _COUNTERS + 2)
    while token < call.num_tokens:
        for expert in range(call.num_experts):
            values[expert] = logits[token * call.num_experts + expert]
        _choose(values, is_free, ids, weights, token * call.top_k, call.top_k, call.renormalise)
        token = jit.take_by(words, _COUNTERS + 2)


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
    item = jit.take_by(words, _COUNTERS + 3)
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
        item = jit.take_by(words, _COUNTERS + 3)


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
    residual, y = jit.rows(words, _INPUTS + 4), jit.rows(words, _INPUTS + 8)
    shares, openings = jit.floats_at(call.weights), jit.floats_at(call.openings)
    acts, shared_acts = jit.floats_at(call.acts), jit.floats_at(call.shared_acts)
    sums = np.empty((call.num_tokens, _COLUMNS), np.float32)
    block = jit.take_by(words, _COUNTERS + 4)
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
        block = jit.take_by(words, _COUNTERS + 4)


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


@jit.function
def _grouped(call: Any) -> Any:
    """The experts that were hit, where the slots of each begin, and the slots in their order."""
    num_slots, num_experts = call.num_tokens * call.top_k, call.num_experts
    ids = jit.ints_at(call.ids)
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
