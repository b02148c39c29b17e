"""Who am I: a frozen position in the mesh, passed in, never looked up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Rank `tp_rank` of `tp_size` on the tensor axis, in stage `stage` of `num_stages`."""

    tp_rank: int = 0
    tp_size: int = 1
    stage: int = 0
    num_stages: int = 1

    def __post_init__(self) -> None:
        assert 0 <= self.tp_rank < self.tp_size, f"tensor rank {self.tp_rank} of {self.tp_size}"
        assert 0 <= self.stage < self.num_stages, f"stage {self.stage} of {self.num_stages}"
