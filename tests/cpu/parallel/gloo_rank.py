"""One of two processes that share a gloo group: `python -m ... FOLDER RANK [--leave]`."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed import FileStore, PrefixStore, ProcessGroupGloo

from draftmark.parallel.collectives import ProcessTensorGroup, TensorGroup

TIMEOUT = timedelta(seconds=20)


def connect(folder: Path, rank: int, *, size: int) -> ProcessGroupGloo:
    """A group of its own on the loopback device; no default group, no port that is known."""
    options = ProcessGroupGloo._Options()
    options._devices = [ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    options._threads = 1
    options._timeout = TIMEOUT
    store = PrefixStore("tensor", FileStore(str(folder / "store"), size))
    return ProcessGroupGloo(store, rank, size, options)


def collectives(group: TensorGroup) -> list[Tensor]:
    """Sums of every dtype that serves, an empty one, columns of two widths."""
    generator = torch.Generator().manual_seed(group.rank)
    results = []
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        x = torch.randn(5, 2, 33, generator=generator, dtype=torch.float64).to(dtype)
        results += [group.sum(x), group.sum(x[:, 1]), group.sum(x[:0])]
    own = torch.randn(3, 4 - group.rank, generator=generator)
    return [*results, group.gather_columns(own, widths=(4, 3))]


def main() -> None:
    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    group = ProcessTensorGroup(connect(folder, rank, size=2))
    if "--leave" in sys.argv:
        return
    with torch.inference_mode():
        torch.save(collectives(group), folder / f"rank{rank}.pt")


if __name__ == "__main__":
    main()
