"""causal_conv, token by token and tap by tap."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from draftmark.kernels.spans import Span


def prefill(x: Tensor, weight: Tensor, ring: Tensor, spans: Sequence[Span]) -> Tensor:
    y = torch.empty_like(x)
    for span in spans:
        _run(y[span.tokens], x[span.tokens], weight, ring[span.slot], span.start)
    return y


def verify(
    x: Tensor, weight: Tensor, ring: Tensor, slots: Tensor, lengths: Tensor, width: int
) -> Tensor:
    y = torch.empty_like(x)
    for b, (slot, length) in enumerate(zip(slots.tolist(), lengths.tolist(), strict=True)):
        tokens = slice(b * width, (b + 1) * width)
        _run(y[tokens], x[tokens], weight, ring[slot], length)
    return y


def _run(y: Tensor, x: Tensor, weight: Tensor, ring: Tensor, start: int) -> None:
    """Tokens at positions from `start`: y is written, and the ring [depth, C]."""
    wide = torch.promote_types(x.dtype, torch.float32)
    taps, depth = weight.shape[1], ring.shape[0]
    for i in range(x.shape[0]):
        ring[(start + i) % depth] = x[i]
        total = torch.zeros(x.shape[1], dtype=wide, device=x.device)
        for j in range(taps):
            position = start + i - (taps - 1) + j
            if position >= 0:
                total += weight[:, j].to(wide) * ring[position % depth].to(wide)
        y[i] = (total * torch.sigmoid(total)).to(y.dtype)
