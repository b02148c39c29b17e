"""The one writer of Markdown tables: padded, so that they read in a terminal, too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

_MAX_CELL = 100


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], *, numbers: bool = False) -> str:
    """None is `-`, a float has four digits at most, long texts are cut. `numbers` sets all but the
    first column to the right."""
    lines = [[_cell(value) for value in row] for row in (head, *rows)]
    widths = [max(2, *(len(line[column]) for line in lines)) for column in range(len(head))]
    to_right = [numbers and column > 0 for column in range(len(head))]
    shape = list(zip(widths, to_right, strict=True))
    rule = ["-" * (width - 1) + ":" if right else "-" * width for width, right in shape]
    padded = [
        [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, (width, right) in zip(line, shape, strict=True)
        ]
        for line in lines
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in (padded[0], rule, *padded[1:]))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= _MAX_CELL else text[: _MAX_CELL - 3] + "..."
