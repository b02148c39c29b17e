"""delta_rows as calls of its parts."""

from __future__ import annotations

from types import ModuleType

from torch import Tensor

from draftmark.kernels.delta_rows.weights import DeltaWeights
from draftmark.kernels.gated_delta import DeltaCache


def verify(
    parts: tuple[ModuleType, ModuleType, ModuleType],
    x: Tensor,
    weights: DeltaWeights,
    ring: Tensor,
    cache: DeltaCache,
    slots: Tensor,
    lengths: Tensor,
    folds: Tensor,
    width: int,
) -> Tensor:
    """`parts` are one backend's causal_conv, gated_delta and norm."""
    causal_conv, gated_delta, norm = parts
    (key_heads, key_dim), (num_heads, value_dim) = cache.keys.shape[2:], cache.deltas.shape[2:]
    keys, values = key_heads * key_dim, num_heads * value_dim
    mixed, z, b, a = x.split((2 * keys + values, values, num_heads, num_heads), dim=1)
    mixed = causal_conv.verify(mixed, weights.taps, ring, slots, lengths, width)
    q, k, v = mixed.split((keys, keys, values), dim=1)
    g, beta = gated_delta.gates(a, b, weights.decay, weights.dt_bias)
    q, k = (part.unflatten(1, (key_heads, key_dim)) for part in (q, k))
    v = v.unflatten(1, (num_heads, value_dim))
    out = gated_delta.verify(q, k, v, g, beta, cache, slots, lengths, folds, width)
    gate = z.unflatten(1, (num_heads, value_dim))
    y: Tensor = norm.gated_rms_norm(out, gate, weights.norm, weights.eps, weights.activation)
    return y.flatten(1)
