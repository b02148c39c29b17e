"""What a training step reads: packed rows of token ids."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """ids [B, T]; positions [B, T], from 0 in each document; weights [B, T]: what it counts to have
    foreseen this token, 0 for the first of a document."""

    ids: Tensor
    positions: Tensor
    weights: Tensor

    def to(self, device: torch.device) -> Batch:
        return Batch(*(x.to(device, non_blocking=True) for x in self.tensors()))

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.ids, self.positions, self.weights

    def pin_memory(self) -> Batch:
        return Batch(*(x.pin_memory() for x in self.tensors()))
