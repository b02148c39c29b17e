"""rope, pair by pair, in at least fp32."""

from __future__ import annotations

import torch
from torch import Tensor

from draftmark.kernels.rope.table import RopeRows


def apply_(x: Tensor, rows: RopeRows) -> None:
    wide = torch.promote_types(x.dtype, torch.float32)
    half = x.shape[-1] // 2
    first, second = x[..., :half].to(wide), x[..., half:].to(wide)
    cos, sin = rows.cos[..., :half].to(wide), rows.sin[..., half:].to(wide)
    x.copy_(torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1))
