"""What is added to the sum over the experts, by backends whose sum is rounded already."""

from __future__ import annotations

import torch
from torch import Tensor


def joined(y: Tensor, shared: tuple[Tensor, Tensor] | None, residual: Tensor | None) -> Tensor:
    if shared is None and residual is None:
        return y
    wide = y.to(torch.promote_types(y.dtype, torch.float32))
    if shared is not None:
        gate, answer = shared
        wide = torch.addcmul(wide, torch.sigmoid(gate), answer.to(wide.dtype))
    if residual is not None:
        wide = wide + residual
    return wide.to(y.dtype)
