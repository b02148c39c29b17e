"""What an attention layer has between its two projections."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWeights:
    """Norms of q and k [D] as the backend of `norm` that has the same name takes them, None for
    none. `has_gate`: x ends with a gate of each query head."""

    q_norm: Tensor | None
    k_norm: Tensor | None
    eps: float
    has_gate: bool
