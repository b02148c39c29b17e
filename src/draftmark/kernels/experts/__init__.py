"""experts: the mixture-of-experts block, each token through the experts that its router chose.

    route(logits)  = ids, weights:   p = softmax(logits), the top_k largest; p or p / their sum
    experts(x)     = sum_e w_e down_e( silu(gate_e x) * up_e x )
    mixture(x)     = experts(x) by route(router x)  (+ sigmoid(g x) shared(x)) (+ residual)

logits [N, E] in float32 at least, ids [N, top_k] int64, weights [N, top_k] in the logits' dtype;
x [N, h] contiguous or a row slice, in the dtype of gate, up and down -> the same, contiguous.
Products are summed in at least fp32. What is between the two products is rounded to x's dtype, and
so is what the second gives, as linear layers do (not by `reference` and `numba`); the sum over the
experts is taken in W = promote(x.dtype, fp32) and rounded once. Router and g are in W. What is
added joins the sum in W, before this rounding (`numba`) or, rounded again, after it. A row may hold
anything, NaN included, and disturbs no other: unselected answers are left out, never multiplied by
zero.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from draftmark.kernels import linear
from draftmark.kernels.deferred import Deferred
from draftmark.kernels.experts import few, grouped, onednn, reference
from draftmark.kernels.experts import torch as plain
from draftmark.kernels.experts.weights import Mixture, Shared

__all__ = [
    "Mixture",
    "Shared",
    "experts",
    "mixture",
    "prepare",
    "route",
    "stored_bytes",
    "workspace_bytes",
]

_NUMBA = "draftmark.kernels.experts.numba"
_ROUTE: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "numba": Deferred(_NUMBA, "route"),
    "onednn": plain.route,
    "reference": reference.route,
    "torch": plain.route,
}
_PREPARE = {
    "numba": plain.prepare,
    "onednn": onednn.prepare,
    "reference": reference.prepare,
    "torch": plain.prepare,
}
_EXPERTS: dict[str, Callable[..., Tensor]] = {
    "numba": Deferred(_NUMBA, "experts"),
    "onednn": onednn.experts,
    "reference": reference.experts,
    "torch": plain.experts,
}
_MIXTURE: dict[str, Callable[..., Tensor]] = {
    "numba": Deferred(_NUMBA, "mixture"),
    "onednn": onednn.mixture,
    "reference": reference.mixture,
    "torch": plain.mixture,
}


def route(logits: Tensor, *, top_k: int, renormalise: bool, backend: str) -> tuple[Tensor, Tensor]:
    """The largest first; of equal logits the lowest id. Ids are within range whatever the logits
    are."""
    return _ROUTE[backend](logits, top_k, renormalise)


def prepare(gate_up: Tensor, down: Tensor, *, backend: str) -> tuple[Tensor, ...]:
    """`gate_up` [E, 2 I, h], gate rows first, and `down` [E, h, I] -> what `experts` takes."""
    return _PREPARE[backend](gate_up, down)


def experts(
    x: Tensor,
    *,
    ids: Tensor,
    weights: Tensor,
    prepared: tuple[Tensor, ...],
    backend: str,
) -> Tensor:
    """The ids of a row differ from one another."""
    return _EXPERTS[backend](x, ids, weights, prepared)


def mixture(x: Tensor, mixture: Mixture, *, residual: Tensor | None = None, backend: str) -> Tensor:
    """residual [N, h], any strides but the last contiguous."""
    return _MIXTURE[backend](x, mixture, residual)


def stored_bytes(prepared: tuple[Tensor, ...]) -> int:
    return sum(linear.stored_bytes(tensor) for tensor in prepared)


def workspace_bytes(
    *,
    rows: int,
    top_k: int,
    num_experts: int,
    hidden_size: int,
    intermediate_size: int,
    itemsize: int,
) -> int:
    """Upper bound of the temporaries of `route` and `experts` for `rows` rows, results included: a
    constant and a part that grows with the rows. `intermediate_size` is this rank's."""
    wide = max(itemsize, 4)
    # Sorted values and ids with the sort's own copies, and the softmax.
    routing = num_experts * (3 * wide + 16)
    # The sorted choice, and x's rows, their sum and the result.
    chosen = top_k * (4 * 8 + 2 * wide) + hidden_size * (wide + itemsize)
    looped = grouped.workspace_bytes(hidden_size, intermediate_size, itemsize)
    whole = plain.workspace_bytes(top_k, num_experts, hidden_size, intermediate_size, itemsize)
    compiled = few.workspace_bytes(num_experts, intermediate_size)
    return rows * (routing + chosen) + max(looped, whole, compiled)
