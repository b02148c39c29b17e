"""delta_rows: what a gated delta net does to verify rows between its two projections, in one call.

    q, k, v = conv(mixed);  g, beta = gates(a, b);  o = delta_rule(q, k, v, g, beta)
    y = norm(o) * act(z)

as `causal_conv`, `gated_delta` and `norm` define it. x [N, C + Hv Dv + 2 Hv], channels contiguous,
is mixed (q of all key heads, k of all, v: C = 2 Hk Dk + Hv Dv channels), z, b and a side by side;
y [N, Hv Dv] in x's dtype, contiguous. q, k, v and o are rounded to x's dtype on the way, as they
are where the parts are called one by one. Legend and caches are those of `gated_delta`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from draftmark.kernels.deferred import Deferred
from draftmark.kernels.delta_rows import reference
from draftmark.kernels.delta_rows import torch as plain
from draftmark.kernels.delta_rows.weights import DeltaWeights
from draftmark.kernels.gated_delta import DeltaCache

__all__ = ["DeltaWeights", "verify"]

_VERIFY: Mapping[str, Callable[..., Tensor]] = {
    "numba": Deferred("draftmark.kernels.delta_rows.numba", "verify"),
    "reference": reference.verify,
    "torch": plain.verify,
}


def verify(
    x: Tensor,
    *,
    weights: DeltaWeights,
    ring: Tensor,
    cache: DeltaCache,
    slots: Tensor,
    lengths: Tensor,
    folds: Tensor,
    width: int,
    backend: str,
) -> Tensor:
    """Token b * width + j sits at position lengths[b] + j of slots[b]; see the two ops' `verify`
    for what becomes of `ring` and `cache`, and for rows of slot 0."""
    return _VERIFY[backend](x, weights, ring, cache, slots, lengths, folds, width)
