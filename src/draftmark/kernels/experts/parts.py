"""What the compiled kernels of mixtures share: how they are called, and their parts up to each
token's choice of experts. Legend: a slot is token * top_k + place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from draftmark.kernels import dots, jit
from draftmark.kernels.experts.weights import Mixture

# Of an item of the router, which is few experts for a row.
_ROUTED, _ROUTED_TOKENS = 8, 64
_NONE = (0, 0, 0, 0)


def run(
    kernel: jit.Kernel,
    act_sizes: tuple[int, int],
    x: Tensor,
    prepared: tuple[Tensor, ...],
    top_k: int,
    *,
    chosen: tuple[Tensor, Tensor] | None = None,
    own: Mixture | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """Experts that are `chosen`, or by the router of `own`; room for acts of so many numbers."""
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
    act_size, shared_act_size = act_sizes
    counts = (hidden_size, top_k * act_size, shared_act_size, num_experts, top_k, 1)
    room = torch.empty(num_slots + (num_tokens * sum(counts) + 1) // 2, dtype=torch.int64)
    addresses, at = [room.data_ptr()], room.data_ptr() + 8 * num_slots
    for count in counts:
        addresses.append(at)
        at += 4 * num_tokens * count
    ids, rows, acts, shared_acts, logits, weights, openings = addresses
    if chosen is not None:
        ids, weights = jit.ints_of(chosen[0]), chosen[1].data_ptr()
    kernel(
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
COUNTERS = 2 + len(_Call._fields)
INPUTS = COUNTERS + _PARTS


@jit.function
def choose(
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


@jit.function
def call_of(words: Any) -> Any:
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
def widen_rows(words: Any, call: Any) -> None:
    """An item is a token."""
    x = jit.rows(words, INPUTS)
    token = jit.take_by(words, COUNTERS)
    while token < call.num_tokens:
        line = jit.floats_at(call.rows + 4 * token * call.hidden_size)
        jit.widen(line, x, token, 0, call.hidden_size)
        token = jit.take_by(words, COUNTERS)


@jit.function
def score(words: Any, call: Any) -> None:
    """An item is some experts, or the gate of the shared one, for some tokens."""
    num_blocks = (call.num_experts + _ROUTED - 1) // _ROUTED + (call.gate != 0)
    num_items = num_blocks * ((call.num_tokens + _ROUTED_TOKENS - 1) // _ROUTED_TOKENS)
    size, rows = call.hidden_size, jit.floats_at(call.rows)
    logits, openings = jit.floats_at(call.logits), jit.floats_at(call.openings)
    router, gate = jit.floats_at(call.router), jit.floats_at(call.gate)
    item = jit.take_by(words, COUNTERS + 1)
    while item < num_items:
        first_token, first = item // num_blocks * _ROUTED_TOKENS, item % num_blocks * _ROUTED
        for token in range(first_token, min(call.num_tokens, first_token + _ROUTED_TOKENS)):
            if first >= call.num_experts:
                openings[token] = jit.sigmoid(dots.one(gate, 0, rows, token * size, size))
            for expert in range(first, min(call.num_experts, first + _ROUTED)):
                logits[token * call.num_experts + expert] = dots.one(
                    router, expert * size, rows, token * size, size
                )
        item = jit.take_by(words, COUNTERS + 1)


@jit.function
def choose_experts(words: Any, call: Any) -> None:
    """An item is a token."""
    ids, weights, logits = (
        jit.ints_at(call.ids),
        jit.floats_at(call.weights),
        jit.floats_at(call.logits),
    )
    values = np.empty(call.num_experts, np.float32)
    is_free = np.empty(call.num_experts, np.bool_)
    token = jit.take_by(words, COUNTERS + 2)
    while token < call.num_tokens:
        for expert in range(call.num_experts):
            values[expert] = logits[token * call.num_experts + expert]
        choose(values, is_free, ids, weights, token * call.top_k, call.top_k, call.renormalise)
        token = jit.take_by(words, COUNTERS + 2)


@jit.function
def grouped(call: Any) -> Any:
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
