"""What a gated delta net has between its two projections."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from draftmark.kernels.norm import GateActivation


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaWeights:
    """taps [C, T], decay and dt_bias [Hv], all in W; norm [Dv] in x's dtype."""

    taps: Tensor
    decay: Tensor
    dt_bias: Tensor
    norm: Tensor
    eps: float
    activation: GateActivation
