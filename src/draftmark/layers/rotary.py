"""Rotary position embedding as a stage holds it: one table for all its layers."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from draftmark.kernels import rope
from draftmark.layers.weight import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryConfig:
    """The first `dim` features of each head are rotated."""

    dim: int
    theta: float
    scaling: rope.RopeScaling = rope.RopeScaling()  # noqa: RUF009 - a frozen value


class Rotary:
    """The table of a stage, in fp32 (float64 where the model runs in it)."""

    def __init__(self, config: RotaryConfig, *, max_context: int, placement: Placement) -> None:
        self.dtype = placement.dtype
        self.table = rope.build_table(
            max_context,
            dim=config.dim,
            theta=config.theta,
            scaling=config.scaling,
            dtype=placement.wide_dtype,
            device=placement.device,
        )

    def rows(self, positions: Tensor) -> rope.RopeRows:
        """positions int64 [N] -> the rotations of a step, made once for all layers."""
        return self.table.rows(positions, dtype=self.dtype)
