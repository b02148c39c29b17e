"""What a mixture of experts consists of."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The expert that all tokens go through: gate [1, h] in W, gate_up [2 I, h] with the gate's
    rows first, down [h, I]; its I may be another one."""

    gate: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """router [E, h] in W. `renormalise`: the weights of a token's experts sum to one."""

    router: Tensor
    prepared: tuple[Tensor, ...]
    shared: Shared | None
    top_k: int
    renormalise: bool
