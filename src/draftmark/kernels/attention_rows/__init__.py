"""attention_rows: what an attention layer does to verify rows between its two projections, in one
call.

    q, k = rope(norm(q)), rope(norm(k));  pool <- k, v;  y = attention(q) * sigmoid(gate)

as `norm`, `rope`, `kv_write` and `attention` define it; norms and gate are there or not. x
[N, (H + 2 K + H) D], features contiguous, is q of all query heads, k and v of all KV heads, and the
gates, side by side; y [N, H D] in x's dtype, contiguous. The first features of a head are rotated,
as many as the table of rotations has. W is promote(x.dtype, float32). Legend: B rows of w tokens,
N = B w, H query heads, K KV heads, D their dimension.

Keys that a row may see are those of `kernels.attention`, and the pool may hold anything where
nothing was stored. A token that is not stored gives something finite, or what the last stored one
of its row would see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor
from torch import dtype as DType

from draftmark.kernels.attention_rows import reference
from draftmark.kernels.attention_rows import torch as plain
from draftmark.kernels.attention_rows.composed import Plan
from draftmark.kernels.attention_rows.layout import RowsLayout
from draftmark.kernels.attention_rows.weights import RowWeights
from draftmark.kernels.deferred import Deferred

__all__ = ["Plan", "RowWeights", "RowsLayout", "plan", "verify"]

_PLAN: Mapping[str, Callable[..., Plan | RowsLayout]] = {
    "numba": lambda layout, dtype: layout,
    "reference": reference.plan,
    "torch": plain.plan,
}
_VERIFY: Mapping[str, Callable[..., Tensor]] = {
    "numba": Deferred("draftmark.kernels.attention_rows.numba", "verify"),
    "reference": reference.verify,
    "torch": plain.verify,
}


def plan(layout: RowsLayout, *, dtype: DType, backend: str) -> Plan | RowsLayout:
    """What all layers share, made once a step; `dtype` is x's."""
    return _PLAN[backend](layout, dtype)


def verify(
    x: Tensor, *, weights: RowWeights, pool: Tensor, plan: Plan | RowsLayout, backend: str
) -> Tensor:
    """Stores this step's keys and values in `pool` [pages, page tokens, 2 K, D], then attends."""
    return _VERIFY[backend](x, weights, pool, plan)
