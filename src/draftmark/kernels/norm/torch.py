"""RMSNorm through the one fast normalisation kernel that torch has on a CPU: layer_norm.

The mean of [x, -x] is zero and its variance is mean(x^2), so layer_norm of it is RMSNorm in its
first half. Three calls instead of the eight that `F.rms_norm` makes underneath: 7 against 12 us at
one row, and no slower at 512.
"""

from __future__ import annotations

import torch
from torch import Tensor


def prepare(weight: Tensor) -> Tensor:
    """[D] -> [2 D]."""
    return torch.cat((weight, weight))


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    both = torch.cat((x, -x), dim=-1)
    y, _, scale = torch.native_layer_norm(both, (both.shape[-1],), weight, None, eps)
    return y.narrow(-1, 0, x.shape[-1]), scale
