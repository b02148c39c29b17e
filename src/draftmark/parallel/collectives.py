"""What the ranks of the tensor axis exchange: sums of partial results, and columns side by side.

Every rank calls the same collectives with the same shapes in the same order, whatever is in them,
and only data travels: a shape is never sent. All ranks gather all parts and add them in rank order,
so a sum is bitwise equal on all of them, which a ring or a tree does not promise.

Legend: T ranks, M rows, V columns of all ranks together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from draftmark.core.errors import EngineFailure


class GroupBroken(EngineFailure):
    """Another tensor rank is gone, or did not come in time."""

    code = "group_broken"


class TensorGroup(Protocol):
    """One rank's end of the tensor axis."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def sum(self, x: Tensor) -> Tensor:
        """Sum over the ranks of x (one shape on all), in float32 at least, rounded once."""
        ...

    def gather_columns(self, x: Tensor, *, widths: Sequence[int]) -> Tensor:
        """x [M, widths[rank]] -> [M, V], the ranks' columns in rank order."""
        ...


@dataclass(frozen=True, slots=True)
class Alone:
    """A rank that needs no peers: what it has is the whole."""

    @property
    def rank(self) -> int:
        return 0

    @property
    def size(self) -> int:
        return 1

    def sum(self, x: Tensor) -> Tensor:
        return x

    def gather_columns(self, x: Tensor, *, widths: Sequence[int]) -> Tensor:
        return x


@dataclass(frozen=True, slots=True, kw_only=True)
class Unconnected:
    """A rank whose peers are not there: its stage can be measured and planned, not run."""

    rank: int
    size: int

    def sum(self, x: Tensor) -> Tensor:
        raise AssertionError(f"rank {self.rank} of {self.size} has no peers to sum with")

    def gather_columns(self, x: Tensor, *, widths: Sequence[int]) -> Tensor:
        raise AssertionError(f"rank {self.rank} of {self.size} has no peers to gather from")


class RawGroup(Protocol):
    """What we need of torch's `ProcessGroupGloo`, `ProcessGroupNCCL` or `ProcessGroup`."""

    def rank(self) -> int: ...

    def size(self) -> int: ...

    def _allgather_base(self, output: Tensor, input: Tensor, /) -> Any: ...


class ProcessTensorGroup:
    """The ranks are processes. `group` is handed over: no other thread may use it meanwhile.

    On a GPU nothing here waits on the host, so that both calls can be captured in a graph. Such a
    graph must be gone before `group` is shut down or aborted: NCCL waits for that for ever. Where
    peers do not come, `group`'s own timeout ends the wait with an error.
    """

    def __init__(self, group: RawGroup) -> None:
        self._group = group
        self.rank = group.rank()
        self.size = group.size()

    def sum(self, x: Tensor) -> Tensor:
        return ordered_sum(self._gathered(x))

    def gather_columns(self, x: Tensor, *, widths: Sequence[int]) -> Tensor:
        widest = max(widths)
        if x.shape[1] < widest:
            x = F.pad(x, (0, widest - x.shape[1]))
        return side_by_side(self._gathered(x), widths)

    def _gathered(self, x: Tensor) -> tuple[Tensor, ...]:
        """x of every rank, in rank order."""
        parts = x.new_empty((self.size * x.shape[0], *x.shape[1:]))
        try:
            self._group._allgather_base(parts, x.contiguous()).wait()
        except RuntimeError as error:  # what torch raises for a lost or late peer
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise GroupBroken(f"the group of tensor rank {self.rank} broke: {reason}") from error
        return parts.view(self.size, *x.shape).unbind()


def ordered_sum(parts: Sequence[Tensor]) -> Tensor:
    """The sum from the first to the last, in float32 at least, rounded once to the parts' dtype."""
    first, *others = parts
    total = first.to(torch.promote_types(first.dtype, torch.float32))
    for part in others:
        total = total + part
    return total.to(first.dtype)


def side_by_side(parts: Sequence[Tensor], widths: Sequence[int]) -> Tensor:
    """parts [M, >= width] each -> [M, sum of widths]."""
    columns = [part[:, :width] for part, width in zip(parts, widths, strict=True)]
    return torch.cat(columns, dim=1)
