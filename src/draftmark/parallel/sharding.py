"""The few ways a parameter is split over the tensor axis, as values the layer puts on it.

Shapes are those of the whole tensor in a checkpoint: [out, in] for a weight, [out] for a bias. The
loader asks a sharding which part of the whole belongs to a rank. A split that does not come out
even is refused by the model's number, on every rank alike, and never padded; token ids alone need
not come out even.
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
        return _whole(shape)


@dataclass(frozen=True, slots=True)
class Columns:
    """Output features split: dimension 0. `what` names them where they do not divide."""

    what: str = "output features"

    def part(self, shape: Sequence[int], mesh: Mesh) -> tuple[slice, ...]:
        return (_share(shape[0], mesh, self.what), *_whole(shape[1:]))


@dataclass(frozen=True, slots=True)
class Rows:
    """Input features split: dimension 1. A bias is whole."""

    what: str = "input features"

    def part(self, shape: Sequence[int], mesh: Mesh) -> tuple[slice, ...]:
        if len(shape) == 1:
            return _whole(shape)
        return (slice(0, shape[0]), _share(shape[1], mesh, self.what))


@dataclass(frozen=True, slots=True)
class Heads:
    """Output features split in whole heads. `what` names them where they do not divide."""

    num_heads: int
    what: str = "heads"

    def part(self, shape: Sequence[int], mesh: Mesh) -> tuple[slice, ...]:
        heads = _share(self.num_heads, mesh, self.what)
        return (_in_features(heads, shape[0] // self.num_heads), *_whole(shape[1:]))


@dataclass(frozen=True, slots=True)
class KVHeads:
    """Output features split in whole KV heads. Fewer heads than ranks: neighbours share one."""

    num_heads: int

    def part(self, shape: Sequence[int], mesh: Mesh) -> tuple[slice, ...]:
        if self.num_heads < mesh.tp_size and mesh.tp_size % self.num_heads == 0:
            head = mesh.tp_rank * self.num_heads // mesh.tp_size
            heads = slice(head, head + 1)
        else:
            heads = _share(self.num_heads, mesh, "KV heads")
        return (_in_features(heads, shape[0] // self.num_heads), *_whole(shape[1:]))


@dataclass(frozen=True, slots=True)
class Vocab:
    """Token ids split: dimension 0 of an embedding or head. The last share may be smaller."""

    def part(self, shape: Sequence[int], mesh: Mesh) -> tuple[slice, ...]:
        share = -(-shape[0] // mesh.tp_size)
        if share * (mesh.tp_size - 1) >= shape[0]:
            raise _refusal(mesh, f"{shape[0]} token ids leave one of {mesh.tp_size} ranks none")
        first = mesh.tp_rank * share
        return (slice(first, min(first + share, shape[0])), *_whole(shape[1:]))


Sharding = Replicated | Columns | Rows | Heads | KVHeads | Vocab


def vocab_widths(vocab_size: int, tp_size: int) -> tuple[int, ...]:
    """How many token ids each rank has."""
    meshes = (Mesh(tp_rank=rank, tp_size=tp_size) for rank in range(tp_size))
    parts = (Vocab().part((vocab_size,), mesh)[0] for mesh in meshes)
    return tuple(part.stop - part.start for part in parts)


def _whole(shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(0, size) for size in shape)


def _share(size: int, mesh: Mesh, what: str) -> slice:
    if size % mesh.tp_size != 0:
        raise _refusal(mesh, f"{size} {what} do not divide over {mesh.tp_size} ranks")
    share = size // mesh.tp_size
    return slice(mesh.tp_rank * share, (mesh.tp_rank + 1) * share)


def _in_features(heads: slice, head_dim: int) -> slice:
    return slice(heads.start * head_dim, heads.stop * head_dim)


def _refusal(mesh: Mesh, reason: str) -> ConfigError:
    return ConfigError(f"--tp {mesh.tp_size}: {reason}", param="tp")
