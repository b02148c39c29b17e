"""silu_mul in at least fp32."""

from __future__ import annotations

import torch
from torch import Tensor


def silu_mul(x: Tensor) -> Tensor:
    gate, up = x.to(torch.promote_types(x.dtype, torch.float32)).chunk(2, dim=-1)
    return (gate * torch.sigmoid(gate) * up).to(x.dtype)
