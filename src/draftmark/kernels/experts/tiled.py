"""A mixture compiled for more tokens than a few, in bf16 on CPUs with AMX (see `tiles`).

One kernel of the parts that `numba` names, but that an expert's two products are one part: of up to
32 tokens of an expert, which are gathered as the columns of B. The weights are A as they lie. The
answers of all slots stay in float32 until each token's are summed, in the order of the experts.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from draftmark.kernels import dots, jit, tiles
from draftmark.kernels.experts import parts
from draftmark.kernels.experts import torch as plain
from draftmark.kernels.experts.weights import Mixture


def can_run(x: Tensor, own: Mixture) -> bool:
    """Whether the sizes are whole tiles."""
    _, double_size, hidden_size = own.prepared[0].shape
    sizes = [double_size // 2] + ([] if own.shared is None else [own.shared.down.shape[1]])
    is_whole = all(size % tiles.ROWS == 0 and size >= tiles.DEPTH for size in sizes)
    is_whole = is_whole and hidden_size % tiles.SIDE == 0
    return is_whole and x.dtype == torch.bfloat16 and tiles.has_tiles()


def mixture(x: Tensor, own: Mixture, residual: Tensor | None) -> Tensor:
    # Answers of no more than is counted for `torch`.
    count = max(1, plain.SLICE_BYTES // _token_bytes(own.top_k, x.shape[1]))
    if len(x) <= count:
        return _run(x, own, residual)
    y = torch.empty(x.shape, dtype=x.dtype)
    for first in range(0, len(x), count):
        rows = slice(first, first + count)
        y[rows] = _run(x[rows], own, None if residual is None else residual[rows])
    return y


def _run(x: Tensor, own: Mixture, residual: Tensor | None) -> Tensor:
    """With answers where `numba` has acts."""
    hidden_size = x.shape[1]
    return parts.run(
        _mix,
        (hidden_size, hidden_size),
        x,
        own.prepared,
        own.top_k,
        own=own,
        residual=residual,
    )


def _token_bytes(top_k: int, hidden_size: int) -> int:
    return 4 * (top_k + 1) * hidden_size


@jit.Kernel
def _mix(words: Any) -> None:
    call = parts.call_of(words)
    parts.widen_rows(words, call)
    jit.wait(call.barrier)
    parts.score(words, call)
    jit.wait(call.barrier)
    parts.choose_experts(words, call)
    jit.wait(call.barrier)
    _answer_all(words, call)
    jit.wait(call.barrier)
    _sum_answers(words, call)


@jit.function
def _answer_all(words: Any, call: Any) -> None:
    """An item is a block of tokens of an expert that was hit, or of all for the shared one."""
    hits, starts, slots = parts.grouped(call)
    most = len(hits) + (call.num_tokens * (call.top_k + 1)) // tiles.SIDE + 1
    experts, firsts = np.empty(most, np.int64), np.empty(most, np.int64)
    num_own = num_items = 0
    for hit in range(len(hits)):
        for first in range(starts[hit], starts[hit + 1], tiles.SIDE):
            experts[num_own], firsts[num_own] = hit, first
            num_own += 1
    num_items = num_own
    if call.gate != 0:
        num_items += (call.num_tokens + tiles.SIDE - 1) // tiles.SIDE
    x = jit.rows(words, parts.INPUTS)
    packed = np.empty(tiles.packed_bytes(call.hidden_size), np.uint8)
    acts = np.empty(tiles.packed_bytes(max(call.size, call.shared_size)), np.uint8)
    sums = np.empty(tiles.SIDE * tiles.SIDE, np.float32)
    tokens, places = np.empty(tiles.SIDE, np.int64), np.empty(tiles.SIDE, np.int64)
    tiles.open_all()
    item = jit.take_by(words, parts.COUNTERS + 3)
    while item < num_items:
        room = (packed.ctypes.data, acts.ctypes.data, sums.ctypes.data)
        if item < num_own:
            hit, first = experts[item], firsts[item]
            count = min(tiles.SIDE, starts[hit + 1] - first)
            for n in range(count):
                places[n] = slots[first + n]
                tokens[n] = slots[first + n] // call.top_k
            weights = 2 * hits[hit] * call.size * call.hidden_size
            own = (call.gate_up + 2 * weights, call.down + weights, call.size, call.hidden_size)
            _answer_block(x, own, tokens, places, count, room, call.acts)
        else:
            first = (item - num_own) * tiles.SIDE
            count = min(tiles.SIDE, call.num_tokens - first)
            for n in range(count):
                places[n] = tokens[n] = first + n
            shared = (call.shared_gate_up, call.shared_down, call.shared_size, call.hidden_size)
            _answer_block(x, shared, tokens, places, count, room, call.shared_acts)
        item = jit.take_by(words, parts.COUNTERS + 3)
    tiles.close()


@jit.function
def _answer_block(
    x: Any, own: Any, tokens: Any, places: Any, count: Any, room: Any, answers: Any
) -> None:
    """What an expert, `own` (gate_up, down, features, inputs), says to `count` tokens, into the
    rows `places` of answers [..., h]."""
    gate_up, down, size, hidden_size = own
    packed, acts, out = room
    sums = jit.floats_at(out)
    tiles.pack(packed, x, tokens, count, hidden_size)
    step = 2 * hidden_size
    _clear_gap(acts, size, count)
    for feature in range(0, size, tiles.ROWS):
        gate = gate_up + feature * step
        up, ahead = gate + size * step, tiles.ROWS * step
        tiles.multiply(gate, up, step, ahead, packed, count, hidden_size, out)
        _pack_act(acts, feature, size, count, sums)
    step = 2 * size
    for column in range(0, hidden_size, tiles.SIDE):
        at = down + column * step
        tiles.multiply(at, at + tiles.ROWS * step, step, tiles.SIDE * step, acts, count, size, out)
        for n in range(count):
            line = jit.floats_at(answers + 4 * (places[n] * hidden_size + column))
            for i in range(tiles.SIDE):
                line[i] = sums[tiles.SIDE * i + n]


@jit.function
def _clear_gap(acts: Any, size: Any, count: Any) -> None:
    """See `tiles.multiply`."""
    first = size - size % tiles.DEPTH
    for column in range(0, count, tiles.ROWS):
        own = tiles.packed_bytes(size) // 2 * (column // tiles.ROWS)
        words = jit.int32s_at(acts + own + 2 * tiles.ROWS * first)
        for i in range(tiles.ROWS * tiles.gap(size) // 2):
            words[i] = numba.int32(0)


@jit.function
def _pack_act(acts: Any, feature: Any, size: Any, count: Any, sums: Any) -> None:
    """Of the gates and, in the lower half of `sums`, the ups of 16 features, as `tiles.pack` does
    of a whole row."""
    place = feature if feature < size - size % tiles.DEPTH else feature + tiles.gap(size)
    for first in range(0, count, tiles.ROWS):
        own = tiles.packed_bytes(size) // 2 * (first // tiles.ROWS)
        for i in range(0, tiles.ROWS, 2):
            pairs = jit.int32s_at(acts + own + 2 * tiles.ROWS * (place + i))
            gate = tiles.SIDE * i + first
            up = gate + tiles.SIDE * tiles.ROWS
            for n in range(tiles.ROWS):
                even = jit.to_half(dots.silu_mul(sums[gate + n], sums[up + n]))
                odd = jit.to_half(
                    dots.silu_mul(sums[gate + tiles.SIDE + n], sums[up + tiles.SIDE + n])
                )
                pairs[n] = numba.int32(numba.uint32(even) | (numba.uint32(odd) << 16))


@jit.function
def _sum_answers(words: Any, call: Any) -> None:
    """An item is a token."""
    residual, y = jit.rows(words, parts.INPUTS + 4), jit.rows(words, parts.INPUTS + 8)
    ids, shares = jit.ints_at(call.ids), jit.floats_at(call.weights)
    openings, size = jit.floats_at(call.openings), call.hidden_size
    room = np.empty(size, np.float32)
    token = jit.take_by(words, parts.COUNTERS + 4)
    while token < call.num_tokens:
        line = jit.floats_at(room.ctypes.data)
        if residual[0] != 0:
            jit.widen(line, residual, token, 0, size)
        else:
            for i in range(size):
                line[i] = numba.float32(0.0)
        if call.gate != 0:
            _add(line, openings[token], jit.floats_at(call.shared_acts + 4 * token * size), size)
        last = -1
        for _ in range(call.top_k):
            slot = _following(ids, token * call.top_k, call.top_k, last)
            last = ids[slot]
            _add(line, shares[slot], jit.floats_at(call.acts + 4 * slot * size), size)
        jit.narrow(y, token, 0, line, size)
        token = jit.take_by(words, parts.COUNTERS + 4)


@jit.function
def _following(ids: Any, first: Any, count: Any, last: Any) -> Any:
    """Of `count` slots from `first` on, that of the least expert above `last`."""
    best = -1
    for slot in range(first, first + count):
        if ids[slot] > last and (best < 0 or ids[slot] < ids[best]):
            best = slot
    return best


@jit.function
def _add(out: Any, by: Any, x: Any, size: Any) -> None:
    for i in range(size):
        out[i] += by * x[i]
