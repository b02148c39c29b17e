"""norm: RMSNorm over the last dimension.

    scale = (mean(x^2) + eps)^-1/2,  y = x * scale * weight

x [..., D] float, any strides but the last contiguous; weight [D] in x's dtype. Sums are taken in
fp32 (fp64 for fp64 input). Returns y, shaped and typed as x, and scale [..., 1] (fp32, or x's
dtype). scale is above zero exactly for the rows whose squares have a finite sum, so it doubles as
the sentinel of non-finite rows: see `kernels.sentinel`.

Weights are handed over in the form `prepare` gives, made once: a backend may want its own.
"""

from __future__ import annotations

from torch import Tensor

from draftmark.kernels.norm import reference
from draftmark.kernels.norm import torch as plain

_PREPARE = {"reference": reference.prepare, "torch": plain.prepare}
_BACKENDS = {"reference": reference.rms_norm, "torch": plain.rms_norm}


def prepare(weight: Tensor, *, backend: str) -> Tensor:
    """The form of `weight` [D] that `rms_norm` of this backend takes."""
    return _PREPARE[backend](weight)


def rms_norm(x: Tensor, weight: Tensor, *, eps: float, backend: str) -> tuple[Tensor, Tensor]:
    """`weight` as `prepare` gave it."""
    return _BACKENDS[backend](x, weight, eps)
