"""The few ways a parameter is split over the tensor axis, as values the layer puts on it.

Shapes are those of the whole tensor in a checkpoint: [out, in] for a weight, [out] for a bias. The
loader asks a sharding which part of the whole belongs to a rank. A split that does not come out
even is refused, never padded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftmark.core.errors import ConfigError
from draftmark.parallel.mesh import Mesh


@dataclass(frozen=True, slots=True)
class Replicated:
    """Every rank holds the whole."""

    def part(self, shape: Sequence[int], mesh: Mesh) -> tuple[slice, ...]:
        return tuple(slice(0, size) for size in shape)


@dataclass(frozen=True, slots=True)
class Columns:
    """Output features split: dimension 0."""

    def part(self, shape: Sequence[int], mesh: Mesh) -> tuple[slice, ...]:
        return (_share(shape[0], mesh, "output features"), *_whole(shape[1:]))


@dataclass(frozen=True, slots=True)
class Rows:
    """Input features split: dimension 1. A bias is added by rank 0 alone, hence whole."""

    def part(self, shape: Sequence[int], mesh: Mesh) -> tuple[slice, ...]:
        if len(shape) == 1:
            return _whole(shape)
        return (slice(0, shape[0]), _share(shape[1], mesh, "input features"))


@dataclass(frozen=True, slots=True)
class Heads:
    """Output features split in whole heads. Fewer heads than ranks: neighbours share one."""

    num_heads: int

    def part(self, shape: Sequence[int], mesh: Mesh) -> tuple[slice, ...]:
        head_dim = shape[0] // self.num_heads
        if self.num_heads >= mesh.tp_size:
            heads = _share(self.num_heads, mesh, "heads")
        elif mesh.tp_size % self.num_heads == 0:
            head = mesh.tp_rank * self.num_heads // mesh.tp_size
            heads = slice(head, head + 1)
        else:
            raise ConfigError(f"{self.num_heads} heads do not divide over {mesh.tp_size} ranks")
        return (slice(heads.start * head_dim, heads.stop * head_dim), *_whole(shape[1:]))


@dataclass(frozen=True, slots=True)
class Vocab:
    """Token ids split: dimension 0 of an embedding or head."""

    def part(self, shape: Sequence[int], mesh: Mesh) -> tuple[slice, ...]:
        return (_share(shape[0], mesh, "token ids"), *_whole(shape[1:]))


Sharding = Replicated | Columns | Rows | Heads | Vocab


def _whole(shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(0, size) for size in shape)


def _share(size: int, mesh: Mesh, what: str) -> slice:
    if size % mesh.tp_size != 0:
        raise ConfigError(f"{size} {what} do not divide over {mesh.tp_size} ranks")
    share = size // mesh.tp_size
    return slice(mesh.tp_rank * share, (mesh.tp_rank + 1) * share)
