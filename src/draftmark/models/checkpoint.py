"""Streams safetensors into a stage's parameters, by the blocks and splits they declare.

Tensors come straight from the mapped file into place, one at a time, so the weights are never in
memory twice. Every tensor is accounted for: used by this stage, used by another, ignored by name,
or an error; so is every block of every parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from draftmark.core.errors import CheckpointError
from draftmark.layers.weight import Target, Weight
from draftmark.models.config import Description, read_header, weight_files
from draftmark.models.family import Take
from draftmark.models.stage import Stage

Progress = Callable[[int, int], None]

_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def load(stage: Stage, model_dir: Path, *, description: Description, progress: Progress) -> int:
    """Fill every parameter of `stage`; returns bytes read. Raises `CheckpointError`.

    `progress(done, total)` counts bytes of the checkpoint, other stages' tensors included.
    """
    files = weight_files(model_dir)
    targets = _targets(stage, description)
    expected = set(targets)
    total = description.facts.checkpoint_bytes
    seen: set[str] = set()
    surplus: list[str] = []
    done = read = 0
    for path in files:
        sizes = {name: _num_bytes(entry) for name, entry in read_header(path).items()}
        with _opened(path) as file:
            for name in sizes:
                if name in targets:
                    tensor = file.get_tensor(name)
                    _check(tensor, targets[name], name=name, path=path)
                    for taking in targets[name].pieces:
                        taking.fill(tensor)
                    seen.add(name)
                    read += sizes[name]
                elif name not in description.names.used and not description.names.is_ignored(name):
                    surplus.append(name)
                done += sizes[name]
                progress(done, total)
    _settle(missing=sorted(expected - seen), surplus=surplus, model_dir=model_dir)
    return read


@dataclass(frozen=True, slots=True)
class _Taking:
    """One block, and what of a tensor fills it."""

    target: Target
    take: Take | None

    def fill(self, tensor: Tensor) -> None:
        whole = tensor if self.take is None else self.take(tensor)
        assert tuple(whole.shape) == self.target.shape, f"{whole.shape} for {self.target.shape}"
        self.target.view.copy_(whole[self.target.part])


@dataclass(frozen=True, slots=True)
class _Destination:
    """Where one checkpoint tensor, which must be of `shape`, goes."""

    shape: tuple[int, ...]
    pieces: tuple[_Taking, ...]


def _targets(stage: Stage, description: Description) -> dict[str, _Destination]:
    """By checkpoint tensor, for those of this stage."""
    places: dict[tuple[str, str], Target] = {}
    for parameter, weight in stage.named_parameters():
        assert isinstance(weight, Weight), parameter
        for block, target in weight.targets():
            places[parameter, block] = target
    targets = {}
    for name, source in description.names.used.items():
        found = tuple(
            _Taking(places.pop((piece.parameter, piece.block)), piece.take)
            for piece in source.pieces
            if (piece.parameter, piece.block) in places
        )
        if found:
            targets[name] = _Destination(source.shape or found[0].target.shape, found)
    assert not places, f"no checkpoint tensor is named for {sorted(places)}"
    return targets


def _check(tensor: Tensor, target: _Destination, *, name: str, path: Path) -> None:
    if tuple(tensor.shape) != target.shape:
        raise CheckpointError(
            f"{path}: {name} has shape {list(tensor.shape)}, expected {list(target.shape)}"
        )
    if tensor.dtype not in _FLOATS:
        raise CheckpointError(f"{path}: {name} is {tensor.dtype}; quantised weights are not built")
    # Both ends tell, and are found at the speed of memory: `isfinite` takes 19 times as long.
    if tensor.numel() and not all(end.isfinite() for end in tensor.aminmax()):
        bad = int((~tensor.isfinite()).sum())
        raise CheckpointError(f"{path}: {name} has {bad} values that are not finite")


def _settle(*, missing: Sequence[str], surplus: Sequence[str], model_dir: Path) -> None:
    if missing:
        raise CheckpointError(f"{model_dir} lacks {_some(missing)}")
    if surplus:
        raise CheckpointError(f"{model_dir} has tensors the model does not use: {_some(surplus)}")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _num_bytes(entry: dict[str, list[int]]) -> int:
    first, last = entry["data_offsets"]
    return last - first


def _opened(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
