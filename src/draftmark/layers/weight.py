"""A parameter that knows its blocks: which checkpoint tensors fill which rows, and how they split.

The layer that makes a weight declares this; the loader only reads it. `Layer` is the life of what
holds weights: made empty, filled by the loader, then `finish()` puts the weights into the form the
kernels want and drops the plain copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from draftmark.kernels.backends import Backends
from draftmark.layers.module import DirectModule
from draftmark.parallel.collectives import Alone, TensorGroup
from draftmark.parallel.mesh import Mesh
from draftmark.parallel.sharding import Sharding


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What all layers of a stage have in common: where they live, what runs them, with whom."""

    dtype: torch.dtype
    device: torch.device
    backends: Backends
    mesh: Mesh
    group: TensorGroup = field(default_factory=Alone)

    @property
    def wide_dtype(self) -> torch.dtype:
        """For what must not be narrower than float32."""
        return torch.promote_types(self.dtype, torch.float32)

    def __post_init__(self) -> None:
        rank, size = self.group.rank, self.group.size
        assert (rank, size) == (self.mesh.tp_rank, self.mesh.tp_size), f"{self.mesh} is not {rank=}"


@dataclass(frozen=True, slots=True)
class Block:
    """One checkpoint tensor in a merged parameter: its short name, whole shape and split."""

    name: str
    shape: tuple[int, ...]
    sharding: Sharding


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where one checkpoint tensor goes: `view` takes `part` of a tensor of `shape`."""

    view: Tensor
    shape: tuple[int, ...]
    part: tuple[slice, ...]


class Weight(nn.Parameter):
    """Blocks stacked along dimension 0, this rank's part of each. Uninitialised until loaded."""

    blocks: tuple[Block, ...]
    mesh: Mesh

    def __new__(
        cls, blocks: Sequence[Block], placement: Placement, dtype: torch.dtype | None = None
    ) -> Weight:
        """In `dtype`, or that of the placement."""
        parts = [_local_shape(block, placement.mesh) for block in blocks]
        shape = (sum(part[0] for part in parts), *parts[0][1:])
        data = torch.empty(shape, dtype=dtype or placement.dtype, device=placement.device)
        weight = super().__new__(cls, data, requires_grad=False)
        weight.blocks = tuple(blocks)
        weight.mesh = placement.mesh
        return weight

    def targets(self) -> Iterator[tuple[str, Target]]:
        """Each block's name with where it is loaded to."""
        first = 0
        for block in self.blocks:
            last = first + _local_shape(block, self.mesh)[0]
            part = block.sharding.part(block.shape, self.mesh)
            yield block.name, Target(view=self.data[first:last], shape=block.shape, part=part)
            first = last


class Layer(DirectModule):
    """Base of modules that hold weights."""

    def finish(self) -> None:
        """Loading is over: take the form the kernels want."""
        raise NotImplementedError

    def stored_bytes(self) -> int:
        """Bytes of weights held after `finish()`."""
        raise NotImplementedError


class Kept(Layer):
    """Base of what uses its weight as it was loaded: `data`, after `finish()`."""

    def __init__(
        self, blocks: Sequence[Block], placement: Placement, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.weight: Weight | None = Weight(blocks, placement, dtype)

    def finish(self) -> None:
        assert self.weight is not None, "finish() was called twice"
        self.data = self.weight.data
        self.weight = None

    def stored_bytes(self) -> int:
        return self.data.nbytes


def _local_shape(block: Block, mesh: Mesh) -> tuple[int, ...]:
    return tuple(part.stop - part.start for part in block.sharding.part(block.shape, mesh))
