"""The first bad layer, row by row."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def first_bad_layer(scales: Sequence[Tensor], layers: Tensor) -> Tensor:
    num_rows = scales[0].shape[0]
    found = torch.full((num_rows,), -1, dtype=torch.int32, device=layers.device)
    for row in range(num_rows):
        for scale, layer in zip(scales, layers, strict=True):
            if not scale[row, 0] > 0:
                found[row] = layer
                break
    return found
