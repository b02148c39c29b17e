"""linear and gated_linear in at least fp32, rounded once."""

from __future__ import annotations

import torch
from torch import Tensor

from draftmark.kernels.silu_mul import reference as silu_mul


def prepare(weight: Tensor) -> Tensor:
    return weight


def prepare_gated(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, ...]:
    return (weight,) if bias is None else (weight, bias)


def prepare_wide(weight: Tensor, is_kept: bool) -> tuple[Tensor, ...]:
    return (weight,)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None) -> Tensor:
    return _wide(x, weight, bias, residual).to(x.dtype)


def wide_linear(x: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
    (weight,) = prepared
    return _wide(x, weight, None, None)


def gated_linear(x: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
    weight, *bias = prepared
    return silu_mul.silu_mul(_wide(x, weight, bias[0] if bias else None, None)).to(x.dtype)


def _wide(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None) -> Tensor:
    wide = torch.promote_types(x.dtype, torch.float32)
    y = x.to(wide) @ weight.to(wide).T
    if bias is not None:
        y = y + bias.to(wide)
    if residual is not None:
        y = y + residual.to(wide)
    return y
