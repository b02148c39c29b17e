"""One row at a time in plain Python and float64, by full sort: the judge of the other backends."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from draftmark.kernels.sample.tables import (
    FREQUENCY,
    MIN_END,
    MIN_P,
    OUTPUT_COUNT,
    PRESENCE,
    REPETITION,
    SEED,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    Logprobs,
    SampleTables,
)

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def noise(seed: int, position: int, token: int) -> float:
    """Gumbel noise of one candidate; see `noise.py` for the formula."""
    key = _mix((_mix((seed + _GOLDEN) & _MASK) + position * _GOLDEN) & _MASK)
    bits = _mix((key + token * _GOLDEN) & _MASK)
    return -math.log(-math.log1p(-((bits >> 12) + 0.5) / 2.0**52))


def process(
    row: Tensor, *, slot: int, position: int, tables: SampleTables, window: Sequence[int] = ()
) -> Tensor:
    """Logits [V] after logit_bias, the min_tokens mask and penalties."""
    row = row.clone()
    for token, bias in zip(
        tables.bias_ids[slot].tolist(), tables.bias_values[slot].tolist(), strict=True
    ):
        if token >= 0:
            row[token] += bias
    if position < int(tables.ints[slot, MIN_END]):
        for token in tables.stop_ids[slot].tolist():
            if token >= 0:
                row[token] = -math.inf
    presence, frequency, repetition = tables.floats[
        slot, [PRESENCE, FREQUENCY, REPETITION]
    ].tolist()
    counts = tables.counts[slot].clone()
    for token in window:
        if token >= 0:
            counts[token] += 1
    outputs, seen = (counts & OUTPUT_COUNT).to(row.dtype), counts != 0
    row = torch.where(seen, torch.where(row > 0, row / repetition, row * repetition), row)
    return row - outputs * frequency - (outputs > 0) * presence


def choose(row: Tensor, *, slot: int, position: int, tables: SampleTables) -> int:
    """Token of processed logits [V]: truncate, then argmax(logits / T + noise)."""
    temperature, top_p, min_p = tables.floats[slot, [TEMPERATURE, TOP_P, MIN_P]].tolist()
    if temperature == 0.0:
        return int(row.argmax())
    order = torch.sort(row, descending=True, stable=True).indices
    scaled = (row.double() - row.max().double()) * (1.0 / max(temperature, 1e-100))
    weights = scaled.exp()[order]
    keep = len(row)
    top_k = int(tables.ints[slot, TOP_K])
    if 0 < top_k < keep:
        keep = top_k
    before = torch.cumsum(weights, 0) - weights
    total = weights[:keep].sum()
    rank = torch.arange(len(row))
    alive = (rank < keep) & ((top_p >= 1.0) | (before < top_p * total)) & (weights >= min_p)
    alive[0] = True
    seed = int(tables.ints[slot, SEED])
    candidates = order[alive].tolist()
    return max(candidates, key=lambda token: float(scaled[token]) + noise(seed, position, token))


def sample(
    logits: Tensor,
    *,
    slots: Tensor,
    position: Tensor,
    tables: SampleTables,
    flags: tuple[int, ...],
    window: Tensor | None = None,
) -> Tensor:
    """See `kernels.sample.sample`. Flags are not read: they only save work."""
    work = logits if logits.dtype == torch.float64 else logits.float()
    tokens = []
    windows = [[]] * len(work) if window is None else window.tolist()
    for row, slot, index, own in zip(work, slots.tolist(), position.tolist(), windows, strict=True):
        processed = process(row, slot=slot, position=index, tables=tables, window=own)
        tokens.append(choose(processed, slot=slot, position=index, tables=tables))
    return torch.tensor(tokens, dtype=torch.int64, device=logits.device)


def logprobs(logits: Tensor, *, chosen: Tensor, top: int) -> Logprobs:
    """See `kernels.sample.logprobs`."""
    values = logits.double().log_softmax(-1)
    order = torch.sort(logits, dim=-1, descending=True, stable=True).indices[:, :top]
    picked = logits.gather(1, chosen[:, None])
    return Logprobs(
        chosen=values.gather(1, chosen[:, None])[:, 0],
        rank=(logits > picked).sum(-1) + 1,
        top_ids=order,
        top_values=values.gather(1, order),
    )
