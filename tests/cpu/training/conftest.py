"""A small tokenizer of the right size, and books of a few pages."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from training.tiny.batches import draw_conversation
from training.tiny.data.open_words import open_pieces, open_words
from training.tiny.data.prose import BOOKS
from training.tiny.rendering import render
from training.tiny.tokenizer import train_tokenizer

VOCABULARY = 4096


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    draw = random.Random("tokenizer")
    chats = [render(draw_conversation(draw)) for _ in range(300)]
    return train_tokenizer([" ".join((*open_words(), *open_pieces())), *chats], VOCABULARY)


@pytest.fixture(scope="session")
def books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("books")
    for name in BOOKS:
        draw = random.Random(name)
        paragraphs = [
            " ".join(draw.choices(open_words(), k=60)).capitalize() + "." for _ in range(40)
        ]
        (folder / f"{name}.txt").write_text("\n\n".join(paragraphs))
    return folder
