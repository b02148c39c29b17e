"""causal_conv: a short depthwise convolution over time, then SiLU.

    y[n, c] = silu(sum_j weight[c, j] x[n - (T - 1) + j, c]),   j < T

N tokens, C channels, T taps, B rows of w tokens, W = promote(x.dtype, float32). x [N, C] float,
channels contiguous; weight [C, T] in any float dtype and strides ([T, C] underneath is fastest).
Sums and SiLU in W, y [N, C] in x's dtype. Inputs before position 0 are zero.

The input of position p of a slot is kept at ring [slots, depth, C], place p % depth, in x's dtype,
depth >= T - 1 + the widest verify row. The ring may hold anything, NaN included, wherever nothing
was stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from draftmark.kernels.causal_conv import reference
from draftmark.kernels.causal_conv import torch as plain
from draftmark.kernels.deferred import Deferred
from draftmark.kernels.spans import Span

__all__ = ["Span", "prefill", "verify"]

_PREFILL: Mapping[str, Callable[..., Any]] = {
    "numba": Deferred("draftmark.kernels.causal_conv.numba", "prefill"),
    "reference": reference.prefill,
    "torch": plain.prefill,
}
_VERIFY: Mapping[str, Callable[..., Any]] = {
    "numba": Deferred("draftmark.kernels.causal_conv.numba", "verify"),
    "reference": reference.verify,
    "torch": plain.verify,
}


def prefill(
    x: Tensor, *, weight: Tensor, ring: Tensor, spans: Sequence[Span], backend: str
) -> Tensor:
    """Every token belongs to one span, the spans to different slots. Reads the T - 1 inputs before
    each span from the ring and leaves the span's last T - 1 there."""
    return _PREFILL[backend](x, weight, ring, spans)


def verify(
    x: Tensor,
    *,
    weight: Tensor,
    ring: Tensor,
    slots: Tensor,
    lengths: Tensor,
    width: int,
    backend: str,
) -> Tensor:
    """Token b * width + j sits at position lengths[b] + j of slots[b] (both int64 [B]); all are
    written to the ring. Rows of slot 0, which may be several, give undefined output."""
    return _VERIFY[backend](x, weight, ring, slots, lengths, width)
