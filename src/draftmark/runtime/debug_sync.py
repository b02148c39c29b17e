"""`--debug-sync`: wait for the whole device around one kind of operation, to bisect a race.

A race that goes away with `lane` lies between a stage and its lanes, with `copy` between a step and
its staging. On a CPU nothing runs behind the host's back, so there is nothing to wait for. What the
waiting costs is counted, and said after the warm-up.

With `lane`, tensor ranks also compare what each of them made of a step: hidden states and return
rows are bitwise equal on all of them, or the ranks drift apart unseen.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import torch
from torch import Tensor

from draftmark.parallel.collectives import TensorGroup

LANE, COPY = "lane", "copy"


class DebugSync:
    """`kinds` of `LANE` and `COPY`; none by default."""

    def __init__(self, kinds: Iterable[str] = (), *, device: torch.device | None = None) -> None:
        is_gpu = device is not None and device.type == "cuda"
        self.kinds = frozenset(kinds)
        self._waits = self.kinds if is_gpu else frozenset()
        self._device = device
        self._seconds = 0.0
        self._count = 0

    def around(self, kind: str) -> None:
        """Before and after an operation of this kind."""
        if kind in self._waits:
            began = time.perf_counter()
            torch.cuda.synchronize(self._device)
            self._seconds += time.perf_counter() - began
            self._count += 1

    def compare(self, group: TensorGroup, value: Tensor, what: str) -> None:
        """Raise `AssertionError` unless `value` is bitwise the same on all ranks of `group`."""
        if group.size == 1:
            return
        mine = digest(value).view(1, 1)
        every = group.gather_columns(mine, widths=[1] * group.size)[0].tolist()
        others = [rank for rank, found in enumerate(every) if found != every[0]]
        if others:
            raise AssertionError(f"{what}: tensor ranks {others} differ from rank 0")

    def describe(self) -> str:
        """What it has cost so far."""
        kinds = ",".join(sorted(self.kinds))
        if not self._waits:
            return f"--debug-sync {kinds}: nothing to wait for on a CPU"
        return (
            f"--debug-sync {kinds}: {self._count} waits for the device took "
            f"{1e3 * self._seconds:.1f} ms in the warm-up"
        )


def digest(value: Tensor) -> Tensor:
    """A checksum of the bits of `value` and of where they stand: int64, on its device."""
    bits = value.contiguous().view(torch.uint8).to(torch.int64).view(-1)
    weights = torch.arange(1, 2 * len(bits) + 1, 2, device=bits.device)
    return (bits * weights * weights).sum()
