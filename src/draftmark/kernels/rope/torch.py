"""rope in three calls: x cos + swap_halves(x) sin."""

from __future__ import annotations

from torch import Tensor

from draftmark.kernels.rope.table import RopeRows


def apply_(x: Tensor, rows: RopeRows) -> None:
    swapped = x.roll(x.shape[-1] // 2, -1)
    x.mul_(rows.cos).addcmul_(swapped, rows.sin)
