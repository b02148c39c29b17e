"""gated_delta by its recurrence, token by token."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from draftmark.kernels.gated_delta.cache import FOLD_TOKENS, DeltaCache, folded
from draftmark.kernels.spans import Span


def gates(a: Tensor, b: Tensor, decay: Tensor, dt_bias: Tensor) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(a.dtype, torch.float32)
    x = a.to(wide) + dt_bias.to(wide)
    softplus = torch.logaddexp(x, torch.zeros_like(x))
    return -decay.to(wide) * softplus, 1.0 / (1.0 + torch.exp(-b.to(wide)))


def prefill(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    cache: DeltaCache,
    spans: Sequence[Span],
) -> Tensor:
    out = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    for span in spans:
        if span.start == 0:
            cache.state[span.slot] = 0.0
        state = _state_at(cache, span.slot, span.start)
        for i in range(span.count):
            token = slice(span.offset + i, span.offset + i + 1)
            row = (q[token][0], k[token][0], v[token][0], g[token][0], beta[token][0])
            state, out[token] = _token(state, *row, cache, span.slot, span.start + i)
            if (span.start + i + 1) % FOLD_TOKENS == 0:
                cache.state[span.slot] = state
    return out


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
    out = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    rows = zip(slots.tolist(), lengths.tolist(), folds.tolist(), strict=True)
    for b, (slot, length, fold) in enumerate(rows):
        for position in range(folded(length - fold), folded(length)):
            cache.state[slot] = _with_record(cache.state[slot], cache, slot, position)
        state = _state_at(cache, slot, length)
        for j in range(width):
            n = b * width + j
            row = (q[n], k[n], v[n], g[n], beta[n])
            state, out[n] = _token(state, *row, cache, slot, length + j)
    return out


def _state_at(cache: DeltaCache, slot: int, length: int) -> Tensor:
    """[Hv, Dk, Dv]: the checkpoint and the records since."""
    state = cache.state[slot].clone()
    for position in range(folded(length), length):
        state = _with_record(state, cache, slot, position)
    return state


def _with_record(state: Tensor, cache: DeltaCache, slot: int, position: int) -> Tensor:
    place = position % cache.num_records
    key = _by_value_head(cache.keys[slot, place], state.shape[0])
    decayed = torch.exp(cache.gates[slot, place])[:, None, None] * state
    return decayed + key[:, :, None] * cache.deltas[slot, place][:, None, :]


def _token(
    state: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    cache: DeltaCache,
    slot: int,
    position: int,
) -> tuple[Tensor, Tensor]:
    """One step of the recurrence: the state after it and o [Hv, Dv]. Leaves the token's record."""
    wide, place = state.dtype, position % cache.num_records
    gate = g.to(wide).clamp(min=-100.0)
    key, query = _unit(k.to(wide)), _unit(q.to(wide)) * q.shape[-1] ** -0.5
    wide_key, wide_query = (_by_value_head(x, state.shape[0]) for x in (key, query))
    decayed = torch.exp(gate)[:, None, None] * state
    seen = torch.einsum("hkv,hk->hv", decayed, wide_key)
    delta = beta.to(wide)[:, None] * (v.to(wide) - seen)
    cache.keys[slot, place], cache.deltas[slot, place] = key, delta
    cache.gates[slot, place] = gate
    state = decayed + wide_key[:, :, None] * delta[:, None, :]
    return state, torch.einsum("hkv,hk->hv", state, wide_query).to(v.dtype)


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(dim=-1, keepdim=True) + 1e-6)


def _by_value_head(x: Tensor, num_heads: int) -> Tensor:
    """[Hk, Dk] -> [Hv, Dk]."""
    return x.repeat_interleave(num_heads // x.shape[0], dim=0)
