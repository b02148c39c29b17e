"""The table of rotations and the rows of one step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from draftmark.kernels.rope.frequencies import RopeScaling, inverse_frequencies


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeRows:
    """cos and sin [N, 1, D] of a step's tokens; cos is repeated in both halves, the sine of the
    first half is negated, so that y = x cos + swap_halves(x) sin."""

    cos: Tensor
    sin: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeTable:
    """cos and sin [positions, D], laid out as in `RopeRows`."""

    cos: Tensor
    sin: Tensor

    def rows(self, positions: Tensor, *, dtype: torch.dtype) -> RopeRows:
        """positions int64 [N], each below the table's length."""
        return RopeRows(
            cos=self.cos.index_select(0, positions).to(dtype).unsqueeze(1),
            sin=self.sin.index_select(0, positions).to(dtype).unsqueeze(1),
        )

    @property
    def nbytes(self) -> int:
        return self.cos.nbytes + self.sin.nbytes


def build_table(
    num_positions: int,
    *,
    dim: int,
    theta: float,
    scaling: RopeScaling,
    dtype: torch.dtype,
    device: torch.device,
) -> RopeTable:
    """`dtype` is what the table is kept in; angles, sines and cosines are made in float64."""
    frequencies = inverse_frequencies(dim, theta=theta, scaling=scaling)
    angles = torch.arange(num_positions, dtype=torch.float64)[:, None] * frequencies
    cos = angles.cos() * scaling.attention_factor
    sin = angles.sin_() * scaling.attention_factor
    return RopeTable(
        cos=torch.cat((cos, cos), dim=-1).to(device=device, dtype=dtype),
        sin=torch.cat((-sin, sin), dim=-1).to(device=device, dtype=dtype),
    )
