"""The cells every side runs, and the prompts they run on.

Prompts are random token ids, different for every (cell, repeat), so that no prefix cache can help
any side; ids stay below 49,000 and off the special tokens of SmolLM2 (0 to 16).
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cell:
    """`batch` requests at once, each `num_in` prompt tokens and exactly `num_out` new ones."""

    batch: int
    num_in: int
    num_out: int

    @property
    def name(self) -> str:
        return f"b{self.batch}_{self.num_in}in_{self.num_out}out"


CELLS = (Cell(1, 64, 128), Cell(4, 64, 128), Cell(16, 64, 128), Cell(8, 512, 64))


def prompts(cell: Cell, repeat: int) -> list[list[int]]:
    rng = random.Random(f"{cell.name}/{repeat}")
    return [[rng.randrange(20, 49_000) for _ in range(cell.num_in)] for _ in range(cell.batch)]


def measure(
    side: str,
    generate: Callable[[list[list[int]], int], list[int]],
    *,
    repeats: int,
    cells: tuple[Cell, ...] = CELLS,
) -> None:
    """Run every cell `repeats` times after one warm-up and print one JSON line a cell.

    `generate(prompts, num_out)` returns the number of new tokens of each request; a count other
    than asked for is an error, not a lower figure.
    """
    generate(prompts(Cell(1, 64, 128), -1), 16)
    for cell in cells:
        rates = []
        generate(prompts(cell, -2), 4)
        for repeat in range(repeats):
            batch = prompts(cell, repeat)
            start = time.perf_counter()
            counts = generate(batch, cell.num_out)
            seconds = time.perf_counter() - start
            if counts != [cell.num_out] * cell.batch:
                raise RuntimeError(f"{side} {cell.name}: wanted {cell.num_out} each, got {counts}")
            rates.append(cell.batch * cell.num_out / seconds)
        row = {
            "side": side,
            "cell": cell.name,
            "tok_s": round(statistics.median(rates), 2),
            "all": [round(rate, 2) for rate in rates],
        }
        print(json.dumps(row), flush=True)
