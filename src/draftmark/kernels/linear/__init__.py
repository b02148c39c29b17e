"""linear: products with weights that are prepared once, after loading.

    linear(x)        = x W^T + b (+ residual)
    gated_linear(x)  = silu(x Wg^T + bg) * (x Wu^T + bu),   W = [Wg; Wu]

x [M, K] contiguous or a row slice, W [N, K], b [N] or None, residual [M, N], all of one dtype ->
[M, N] (gated: [M, N / 2]) contiguous, sums in at least fp32. `prepare` and `prepare_gated` give
the weights in the form the backend takes; the plain tensor may be dropped afterwards. `onednn`
keeps its own blocked layout (CPU, bf16 and fp16 only) and adds the residual and the gate before
rounding, which `torch` does after; `numba` (bf16 only) has kernels of its own that read this layout
at few rows.

    wide_linear(x)   = x W^T in float32 at least

is for the output head: at a logit of 25 a bf16 step is 0.125, so that candidates tie which differ,
and the lower id wins for no reason. A backend without a wider product may round, but then it takes
the `WIDE_CANDIDATES` largest of each row again in float32.
"""

from __future__ import annotations

from torch import Tensor

from draftmark.kernels.deferred import Deferred
from draftmark.kernels.linear import onednn, reference
from draftmark.kernels.linear import torch as plain
from draftmark.kernels.linear.onednn import WIDE_CANDIDATES
from draftmark.kernels.linear.strips import Strips

__all__ = [
    "WIDE_CANDIDATES",
    "Prepared",
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
_NUMBA = "draftmark.kernels.linear.numba"
_PREPARE = {
    "numba": Deferred(_NUMBA, "prepare"),
    **{name: module.prepare for name, module in _MODULES.items()},
}
_PREPARE_GATED = {
    "numba": Deferred(_NUMBA, "prepare_gated"),
    **{name: module.prepare_gated for name, module in _MODULES.items()},
}
_PREPARE_WIDE = {
    "numba": Deferred(_NUMBA, "prepare_wide"),
    **{name: module.prepare_wide for name, module in _MODULES.items()},
}
_LINEAR = {
    "numba": Deferred(_NUMBA, "linear"),
    **{name: module.linear for name, module in _MODULES.items()},
}
_WIDE = {
    "numba": Deferred(_NUMBA, "wide_linear"),
    **{name: module.wide_linear for name, module in _MODULES.items()},
}
_GATED = {
    "numba": Deferred(_NUMBA, "gated_linear"),
    **{name: module.gated_linear for name, module in _MODULES.items()},
}

# A weight in the form its backend takes.
Prepared = Tensor | Strips


def prepare(weight: Tensor, *, backend: str) -> Prepared:
    return _PREPARE[backend](weight)


def prepare_gated(weight: Tensor, bias: Tensor | None, *, backend: str) -> tuple[Prepared, ...]:
    """`weight` [N, K] with the gate's rows first, `bias` [N] -> what `gated_linear` takes."""
    return _PREPARE_GATED[backend](weight, bias)


def prepare_wide(weight: Tensor, *, is_kept: bool, backend: str) -> tuple[Prepared, ...]:
    """`weight` [N, K] -> what `wide_linear` takes: itself, and perhaps a copy in a layout of its
    own, which a backend only makes of a weight that is kept anyway (`is_kept`)."""
    return _PREPARE_WIDE[backend](weight, is_kept)


def linear(
    x: Tensor,
    weight: Prepared,
    bias: Tensor | None = None,
    *,
    residual: Tensor | None = None,
    backend: str,
) -> Tensor:
    return _LINEAR[backend](x, weight, bias, residual)


def wide_linear(x: Tensor, prepared: tuple[Prepared, ...], *, backend: str) -> Tensor:
    """x [M, K] -> [M, N], float32 for narrower dtypes, else x's own."""
    return _WIDE[backend](x, prepared)


def gated_linear(x: Tensor, prepared: tuple[Prepared, ...], *, backend: str) -> Tensor:
    return _GATED[backend](x, prepared)


def is_packing(backend: str) -> bool:
    """Whether a prepared weight is a copy in a layout of its own."""
    return backend in ("numba", "onednn")


def stored_bytes(prepared: Prepared) -> int:
    """Bytes a prepared weight takes, whatever its layout."""
    if isinstance(prepared, Strips):
        return prepared.nbytes
    return onednn.stored_bytes(prepared) if prepared.is_mkldnn else prepared.nbytes
