"""linear: products with weights that are prepared once, after loading.

    linear(x)        = x W^T + b (+ residual)
    gated_linear(x)  = silu(x Wg^T + bg) * (x Wu^T + bu),   W = [Wg; Wu]

x [M, K] contiguous or a row slice, W [N, K], b [N] or None, residual [M, N], all of one dtype ->
[M, N] (gated: [M, N / 2]) contiguous, sums in at least fp32. `prepare` and `prepare_gated` give
the weights in the form the backend takes; the plain tensor may be dropped afterwards. `onednn`
keeps its own blocked layout (CPU, bf16 and fp16 only) and adds the residual and the gate before
rounding, which the others do after.

    wide_linear(x)   = x W^T in float32 at least

is for the output head: at a logit of 25 a bf16 step is 0.125, so that candidates tie which differ,
and the lower id wins for no reason. A backend without a wider product may round, but then it takes
the `WIDE_CANDIDATES` largest of each row again in float32.
"""

from __future__ import annotations

from torch import Tensor

from draftmark.kernels.linear import onednn, reference
from draftmark.kernels.linear import torch as plain
from draftmark.kernels.linear.onednn import WIDE_CANDIDATES

__all__ = [
    "WIDE_CANDIDATES",
    "gated_linear",
    "is_packing",
    "linear",
    "prepare",
    "prepare_gated",
    "prepare_wide",
    "stored_bytes",
    "wide_linear",
]

_MODULES = {"reference": reference, "torch": plain, "onednn": onednn}
_PREPARE = {name: module.prepare for name, module in _MODULES.items()}
_PREPARE_GATED = {name: module.prepare_gated for name, module in _MODULES.items()}
_PREPARE_WIDE = {name: module.prepare_wide for name, module in _MODULES.items()}
_LINEAR = {name: module.linear for name, module in _MODULES.items()}
_WIDE = {name: module.wide_linear for name, module in _MODULES.items()}
_GATED = {name: module.gated_linear for name, module in _MODULES.items()}


def prepare(weight: Tensor, *, backend: str) -> Tensor:
    return _PREPARE[backend](weight)


def prepare_gated(weight: Tensor, bias: Tensor | None, *, backend: str) -> tuple[Tensor, ...]:
    """`weight` [N, K] with the gate's rows first, `bias` [N] -> what `gated_linear` takes."""
    return _PREPARE_GATED[backend](weight, bias)


def prepare_wide(weight: Tensor, *, is_kept: bool, backend: str) -> tuple[Tensor, ...]:
    """`weight` [N, K] -> what `wide_linear` takes: itself, and perhaps a copy in a layout of its
    own, which a backend only makes of a weight that is kept anyway (`is_kept`)."""
    return _PREPARE_WIDE[backend](weight, is_kept)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    residual: Tensor | None = None,
    backend: str,
) -> Tensor:
    return _LINEAR[backend](x, weight, bias, residual)


def wide_linear(x: Tensor, prepared: tuple[Tensor, ...], *, backend: str) -> Tensor:
    """x [M, K] -> [M, N], float32 for narrower dtypes, else x's own."""
    return _WIDE[backend](x, prepared)


def gated_linear(x: Tensor, prepared: tuple[Tensor, ...], *, backend: str) -> Tensor:
    return _GATED[backend](x, prepared)


def is_packing(backend: str) -> bool:
    """Whether a prepared weight is a copy in a layout of its own."""
    return backend == "onednn"


def stored_bytes(prepared: Tensor) -> int:
    """Bytes a prepared weight takes, whatever its layout."""
    return onednn.stored_bytes(prepared) if prepared.is_mkldnn else prepared.nbytes
