"""Rotary position embedding as a stage holds it: one table for all its layers."""

from __future__ import annotations

import torch
from torch import Tensor

from draftmark.kernels import rope
from draftmark.layers.weight import Placement


class Rotary:
    """The table of a stage, in fp32 (float64 where the model runs in it)."""

    def __init__(
        self,
        head_dim: int,
        *,
        theta: float,
        scaling: rope.RopeScaling,
        max_context: int,
        placement: Placement,
    ) -> None:
        self.dtype = placement.dtype
        self.table = rope.build_table(
            max_context,
            dim=head_dim,
            theta=theta,
            scaling=scaling,
            dtype=torch.promote_types(placement.dtype, torch.float32),
            device=placement.device,
        )

    def rows(self, positions: Tensor) -> rope.RopeRows:
        """positions int64 [N] -> the rotations of a step, made once for all layers."""
        return self.table.rows(positions, dtype=self.dtype)
