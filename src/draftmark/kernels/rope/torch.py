"""rope in three calls: x cos + swap_halves(x) sin."""

from __future__ import annotations

import torch
from torch import Tensor

from draftmark.kernels.rope.table import RopeRows


def apply(x: Tensor, rows: RopeRows) -> Tensor:
    return torch.addcmul(x * rows.cos, x.roll(x.shape[-1] // 2, -1), rows.sin)
