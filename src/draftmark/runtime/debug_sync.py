"""`--debug-sync`: wait for the whole device around one kind of operation, to bisect a race.

A race that goes away with `lane` lies between a stage and its lanes, with `copy` between a step and
its staging. On a CPU nothing runs behind the host's back, so there is nothing to wait for. What the
waiting costs is counted, and said after the warm-up.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import torch

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

    def describe(self) -> str:
        """What it has cost so far."""
        kinds = ",".join(sorted(self.kinds))
        if not self._waits:
            return f"--debug-sync {kinds}: nothing to wait for on a CPU"
        return (
            f"--debug-sync {kinds}: {self._count} waits for the device took "
            f"{1e3 * self._seconds:.1f} ms in the warm-up"
        )
