"""linear and gated_linear through `F.linear`, weights as they are."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from draftmark.kernels.silu_mul import torch as silu_mul

_WIDENED_ROWS = 4096


def prepare(weight: Tensor) -> Tensor:
    return weight


def prepare_gated(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, ...]:
    return (weight,) if bias is None else (weight, bias)


def prepare_wide(weight: Tensor, is_kept: bool) -> tuple[Tensor, ...]:
    return (weight,)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None) -> Tensor:
    y = F.linear(x, weight, bias)
    return y if residual is None else y.add_(residual)


def wide_linear(x: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
    (weight,) = prepared
    wide = torch.promote_types(x.dtype, torch.float32)
    if x.dtype == wide:
        return F.linear(x, weight)
    if x.is_cuda:
        return torch.mm(x, weight.T, out_dtype=wide)
    # A CPU has no product with a wider output; widening a slice at a time bounds the copy.
    rows = x.to(wide)
    return torch.cat([F.linear(rows, part.to(wide)) for part in weight.split(_WIDENED_ROWS)], dim=1)


def gated_linear(x: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
    return silu_mul.silu_mul(F.linear(x, *prepared))
