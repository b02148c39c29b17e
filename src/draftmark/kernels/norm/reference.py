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


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float, activation: str) -> Tensor:
    wide = torch.promote_types(x.dtype, torch.float32)
    y, _ = rms_norm(x.to(wide), weight, eps)
    opening = torch.sigmoid(gate.to(wide))
    if activation == "silu":
        opening = gate.to(wide) * opening
    return (y.to(gate.dtype).to(wide) * opening).to(gate.dtype)
