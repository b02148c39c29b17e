"""norm: RMSNorm over the last dimension, plain and gated.

    scale = (mean(x^2) + eps)^-1/2,  y = x * scale * weight

W = promote(x.dtype, float32). x [..., D] float, any strides but the last contiguous; weight [D] in
x's dtype or in W. Sums and products are in W. Returns y, shaped and typed as x and rounded once,
and scale [..., 1] (W, or x's dtype). scale is above zero exactly for the rows whose squares have a
finite sum, so it doubles as the sentinel of non-finite rows: see `kernels.sentinel`.

Weights of `rms_norm` are handed over in the form `prepare` gives, made once: a backend may want
its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from torch import Tensor

from draftmark.kernels.deferred import Deferred
from draftmark.kernels.norm import reference
from draftmark.kernels.norm import torch as plain

GateActivation = Literal["silu", "sigmoid"]

_PREPARE: Mapping[str, Callable[..., Any]] = {
    "numba": Deferred("draftmark.kernels.norm.numba", "prepare"),
    "reference": reference.prepare,
    "torch": plain.prepare,
}
_PLAIN: Mapping[str, Callable[..., Any]] = {
    "numba": Deferred("draftmark.kernels.norm.numba", "rms_norm"),
    "reference": reference.rms_norm,
    "torch": plain.rms_norm,
}
_GATED: Mapping[str, Callable[..., Any]] = {
    "numba": Deferred("draftmark.kernels.norm.numba", "gated_rms_norm"),
    "reference": reference.gated_rms_norm,
    "torch": plain.gated_rms_norm,
}


def prepare(weight: Tensor, *, backend: str) -> Tensor:
    """The form of `weight` [D] that `rms_norm` of this backend takes."""
    return _PREPARE[backend](weight)


def rms_norm(x: Tensor, weight: Tensor, *, eps: float, backend: str) -> tuple[Tensor, Tensor]:
    """`weight` as `prepare` gave it."""
    return _PLAIN[backend](x, weight, eps)


def gated_rms_norm(
    x: Tensor,
    gate: Tensor,
    weight: Tensor,
    *,
    eps: float,
    activation: GateActivation,
    backend: str,
) -> Tensor:
    """x, gate [..., D], weight [D] as it is -> y * activation(gate), [..., D] in gate's dtype.

    The norm comes before the gate, and y is rounded to gate's dtype before their product, which is
    in W like the activation. x may be wider than gate.
    """
    return _GATED[backend](x, gate, weight, eps, activation)
