"""silu_mul: the gate of a SwiGLU block.

    y = silu(x[..., :D]) * x[..., D:]

x [..., 2 D] float (gate half first) -> y [..., D] in x's dtype, contiguous.
"""

from __future__ import annotations

from torch import Tensor

from draftmark.kernels.silu_mul import reference
from draftmark.kernels.silu_mul import torch as plain

_BACKENDS = {"reference": reference.silu_mul, "torch": plain.silu_mul}


def silu_mul(x: Tensor, *, backend: str) -> Tensor:
    return _BACKENDS[backend](x)
