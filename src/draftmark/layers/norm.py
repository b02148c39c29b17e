"""RMSNorm with its weight."""

from __future__ import annotations

from torch import Tensor

from draftmark.kernels import norm as op
from draftmark.layers.weight import Block, Layer, Placement, Weight
from draftmark.parallel.sharding import Replicated


class RMSNorm(Layer):
    """x [..., dim] -> (normed, scale [..., 1]); see `kernels.norm` for the scale's second use."""

    def __init__(self, dim: int, *, eps: float, placement: Placement) -> None:
        super().__init__()
        self.eps = eps
        self.backend = placement.backends.norm
        self.weight: Weight | None = Weight([Block("", (dim,), Replicated())], placement)

    def finish(self) -> None:
        assert self.weight is not None, "finish() was called twice"
        self.prepared = op.prepare(self.weight.data, backend=self.backend)
        self.weight = None

    def stored_bytes(self) -> int:
        return self.prepared.nbytes

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return op.rms_norm(x, self.prepared, eps=self.eps, backend=self.backend)
