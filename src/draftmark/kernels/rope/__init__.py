"""rope: rotary position embedding, half-split pairing, over the whole head.

    y[..., i]       = x[..., i] cos(p f_i) - x[..., i + D/2] sin(p f_i)
    y[..., i + D/2] = x[..., i + D/2] cos(p f_i) + x[..., i] sin(p f_i)

A table of cos and sin [positions, D] fp32 (fp64 where the model runs in it) is built once from
float64 angles. Each step gathers `rows` of it for its tokens, once for all layers and in the
activations' dtype; `apply_` turns the heads in place. x [N, H, D], any strides but the last
contiguous.
"""

from __future__ import annotations

from torch import Tensor

from draftmark.kernels.rope import reference
from draftmark.kernels.rope import torch as plain
from draftmark.kernels.rope.frequencies import (
    RopeScaling,
    inverse_frequencies,
    yarn_attention_factor,
)
from draftmark.kernels.rope.table import RopeRows, RopeTable, build_table

__all__ = [
    "RopeRows",
    "RopeScaling",
    "RopeTable",
    "apply_",
    "build_table",
    "inverse_frequencies",
    "yarn_attention_factor",
]

_BACKENDS = {"reference": reference.apply_, "torch": plain.apply_}


def apply_(x: Tensor, rows: RopeRows, *, backend: str) -> None:
    _BACKENDS[backend](x, rows)
