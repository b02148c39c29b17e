"""Inputs for gated_delta that break careless code, and its judge: the recurrence in float64.

T tokens, Hk key heads, Hv value heads, Dk, Dv their sizes. Each value head has gates of its own
kind, so that one run sees no decay, hardly any, strong, complete, and all of them mixed in time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from draftmark.kernels import gated_delta
from draftmark.kernels.gated_delta import DeltaCache, Span

KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM = 3, 6, 16, 12
GATES = (0.0, -1e-4, -20.0, -130.0, "mixed", "slow")
KEYS = ("random", "identical", "long", "repeated")
LENGTHS = (1, 63, 64, 65, 1000)


@dataclass(frozen=True)
class Inputs:
    """q, k [T, Hk, Dk], v [T, Hv, Dv], g, beta [T, Hv]."""

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    beta: Tensor

    def __len__(self) -> int:
        return len(self.q)

    def __getitem__(self, tokens: slice | Tensor) -> Inputs:
        return Inputs(*(x[tokens] for x in self.all))

    @property
    def all(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        return self.q, self.k, self.v, self.g, self.beta

    def to(self, where: torch.dtype | str) -> Inputs:
        return Inputs(*(x.to(where) for x in self.all))


def joined(parts: list[Inputs]) -> Inputs:
    return Inputs(*(torch.cat(xs) for xs in zip(*(part.all for part in parts), strict=True)))


def make_inputs(
    num_tokens: int, *, keys: str = "random", seed: int = 0, dtype: torch.dtype = torch.float64
) -> Inputs:
    """Made in float32, so that every dtype above half sees the same numbers."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(num_tokens, *shape, generator=random)

    q, k = normal(KEY_HEADS, KEY_DIM), normal(KEY_HEADS, KEY_DIM)
    v = normal(VALUE_HEADS, VALUE_DIM)
    beta = torch.rand(num_tokens, VALUE_HEADS, generator=random)
    if keys == "identical":
        k, beta = k[:1].expand(k.shape) + 1e-3 * k, 1.0 - 1e-3 * beta
    elif keys == "long":
        k = 11.0 * k / k.norm(dim=-1, keepdim=True)
    elif keys == "repeated":
        again = torch.arange(num_tokens) % 3
        q, k, v, beta = (
            q[again % len(q)],
            k[again % len(q)],
            v[again % len(q)],
            beta[again % len(q)],
        )
    g = torch.stack([_gates(kind, num_tokens, random) for kind in GATES], dim=1)
    return Inputs(q, k, v, g, beta).to(dtype)


def _gates(kind: float | str, num_tokens: int, random: torch.Generator) -> Tensor:
    if kind == "slow":
        return -0.05 * torch.rand(num_tokens, generator=random)
    if kind == "mixed":
        choice = torch.tensor([-0.0, -1e-4, -0.3, -20.0, -130.0, -1e-3, -0.0, -1e-4])
        return choice[torch.randint(len(choice), (num_tokens,), generator=random)]
    return torch.full((num_tokens,), float(kind))


def judge(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """o [T, Hv, Dv] and the final state [Hv, Dk, Dv], in float64."""
    q, k, v, g, beta = (x.double() for x in inputs.all)
    group = v.shape[1] // k.shape[1]
    q, k = (x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
    q, k = ((x / s).repeat_interleave(group, dim=1) for x, s in ((q, q.shape[-1] ** 0.5), (k, 1.0)))
    state, out = v.new_zeros(v.shape[1], k.shape[-1], v.shape[-1]), torch.empty_like(v)
    for t in range(len(v)):
        state = g[t].exp()[:, None, None] * state
        delta = beta[t][:, None] * (v[t] - torch.einsum("hkv,hk->hv", state, k[t]))
        state = state + k[t][:, :, None] * delta[:, None, :]
        out[t] = torch.einsum("hkv,hk->hv", state, q[t])
    return out, state


def error(found: Tensor, want: Tensor, *, head_dim: int) -> float:
    """The largest difference of any head, relative to that head's largest value; inf for NaN."""
    others = tuple(d for d in range(want.dim()) if d != head_dim)
    scale = want.abs().amax(others)
    worst = ((found.double() - want).abs().amax(others) / scale).max().item()
    return worst if worst == worst else float("inf")


def make_cache(
    num_slots: int, *, width: int = 1, dtype: torch.dtype = torch.float64, device: str = "cpu"
) -> DeltaCache:
    """Full of NaN, with as few records as the widest verify row allows."""
    records = gated_delta.FOLD_TOKENS - 1 + 2 * width
    shapes = {
        "state": (num_slots, VALUE_HEADS, KEY_DIM, VALUE_DIM),
        "keys": (num_slots, records, KEY_HEADS, KEY_DIM),
        "deltas": (num_slots, records, VALUE_HEADS, VALUE_DIM),
        "gates": (num_slots, records, VALUE_HEADS),
    }
    return DeltaCache(
        **{k: torch.full(s, torch.nan, dtype=dtype, device=device) for k, s in shapes.items()}
    )


def run_prefill(
    inputs: Inputs, cache: DeltaCache, *, backend: str, slot: int = 1, start: int = 0
) -> Tensor:
    span = Span(offset=0, count=len(inputs), start=start, slot=slot)
    return gated_delta.prefill(*inputs.all, cache=cache, spans=[span], backend=backend)


def state_of(cache: DeltaCache, slot: int, length: int) -> Tensor:
    """The state of a slot from its checkpoint and records, by the formula, in float64."""
    first = length - length % gated_delta.FOLD_TOKENS
    places = torch.arange(first, length, device=cache.keys.device) % cache.num_records
    keys, deltas, gates = (
        x[slot, places].double() for x in (cache.keys, cache.deltas, cache.gates)
    )
    keys = keys.repeat_interleave(deltas.shape[1] // keys.shape[1], dim=1)
    state = gates.sum(0).exp()[:, None, None] * cache.state[slot].double()
    for p in range(length - first):
        decay = gates[p + 1 :].sum(0).exp()[:, None, None]
        state = state + decay * keys[p][:, :, None] * deltas[p][:, None, :]
    return state
