"""RMSNorm with its weight."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from draftmark.kernels import norm as op
from draftmark.layers.weight import Block, Layer, Placement, Weight
from draftmark.parallel.sharding import Replicated


@dataclass(frozen=True, slots=True, kw_only=True)
class NormConfig:
    """`zero_centred`: the checkpoint holds what the weight is above 1."""

    eps: float
    zero_centred: bool = False


class RMSNorm(Layer):
    """x [..., dim] -> (normed, scale [..., 1]); see `kernels.norm` for the scale's second use."""

    def __init__(self, dim: int, config: NormConfig, *, placement: Placement) -> None:
        super().__init__()
        self.eps, self.zero_centred = config.eps, config.zero_centred
        self.backend = placement.backends.norm
        # 1 + w has more digits than a narrow format holds near 1.
        dtype = placement.wide_dtype if config.zero_centred else placement.dtype
        self.weight: Weight | None = Weight([Block("", (dim,), Replicated())], placement, dtype)

    def finish(self) -> None:
        assert self.weight is not None, "finish() was called twice"
        weight = self.weight.data
        self.prepared = op.prepare(
            weight + 1 if self.zero_centred else weight, backend=self.backend
        )
        self.weight = None

    def stored_bytes(self) -> int:
        return self.prepared.nbytes

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return op.rms_norm(x, self.prepared, eps=self.eps, backend=self.backend)
