"""linear and gated_linear through `F.linear`, weights as they are."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from draftmark.kernels.silu_mul import torch as silu_mul


def prepare(weight: Tensor) -> Tensor:
    return weight


def prepare_gated(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, ...]:
    return (weight,) if bias is None else (weight, bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None) -> Tensor:
    y = F.linear(x, weight, bias)
    return y if residual is None else y.add_(residual)


def gated_linear(x: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
    return silu_mul.silu_mul(F.linear(x, *prepared))
