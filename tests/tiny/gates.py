"""What counts as too few right answers. What is wanted stands in `training.tiny.evaluate.WANTED`.

A gate asks a few of the conversations that `evaluate` asks. It is red when so few answers are right
that a model which just reaches what is wanted would give as few in one of a hundred draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

from training.tiny.conversation import Conversation
from training.tiny.evaluate import Task

RISK = 0.01


def least_right(wanted: float, count: int) -> int:
    """The smallest number of right answers that is not too few."""
    fewer = 0.0
    for right in range(count + 1):
        fewer += comb(count, right) * wanted**right * (1 - wanted) ** (count - right)
        if fewer > RISK:
            return right
    return count


def line(name: str, right: int, count: int, wanted: float) -> str:
    """One line of a table of gates."""
    least = least_right(wanted, count)
    colour = "green" if right >= least else "RED"
    return f"{name:<36} {right:>4} of {count:<4} least {least:<4} wanted {wanted:.2f}  {colour}"


def count_right(task: Task, made: Sequence[Conversation], texts: Sequence[str]) -> int:
    return sum(task.is_right(*pair) for pair in zip(made, texts, strict=True))
