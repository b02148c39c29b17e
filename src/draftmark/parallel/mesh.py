"""Who am I: a frozen position in the mesh, passed in, never looked up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Rank `tp_rank` of `tp_size` on the tensor axis."""

    tp_rank: int = 0
    tp_size: int = 1
