"""RMSNorm as written down."""

from __future__ import annotations

import torch
from torch import Tensor


def prepare(weight: Tensor) -> Tensor:
    return weight


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return (wide * scale * weight.to(wide.dtype)).to(x.dtype), scale
