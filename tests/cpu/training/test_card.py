"""The model's card says what was measured and what was wanted."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer

from training.tiny.card import Measured, write_card
from training.tiny.evaluate import TASKS, WANTED
from training.tiny.export import export
from training.tiny.model import Tiny
from training.tiny.shape import Shape


def test_the_card_has_the_table_and_its_command(tmp_path: Path, tokenizer: Tokenizer) -> None:
    torch.manual_seed(0)
    export(Tiny(Shape()), tokenizer, tmp_path)
    figures = dict.fromkeys(WANTED, 0.91) | {"looped share": 0.12345}
    measured = Measured(
        figures=figures, wanted=WANTED, count=40, few=8, dtype="bfloat16", option=" --count 40"
    )
    write_card(tmp_path, measured)
    text = (tmp_path / "README.md").read_text()
    assert text.startswith("---\nlicense: apache-2.0\n")
    for name, wanted in WANTED.items():
        assert f"| {name} | 0.910 | {wanted} |\n" in text
    assert "| looped share | 0.123 |  |\n" in text
    assert " --count 40 --card\n" in text
    assert "11.6 million parameters" in text
    assert "{" not in text


def test_held_out_conversations_are_the_same_at_every_call() -> None:
    """Goldens, gates and the table are about the same ones."""
    for task in TASKS:
        assert task.draw(3) == task.draw(5)[:3]
        assert all(made.thinking is task.thinking for made in task.draw(3))


def test_what_is_wanted_is_measured() -> None:
    asked = {task.name for task in TASKS}
    beside = {name for name in WANTED if name not in asked}
    assert beside == {
        "thinking off respected",
        "accepted length at k=3, chat",
        "accepted length at k=3, unseen prose",
    }
