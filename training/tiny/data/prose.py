"""The English books: the last tenth of each is kept for evaluation."""

from __future__ import annotations

import random
from pathlib import Path

from training.tiny.conversation import Split

BOOKS = (
    "brothers_karamazov",
    "count_of_monte_cristo",
    "don_quixote",
    "les_miserables",
    "middlemarch",
    "moby_dick",
    "tom_jones",
    "war_and_peace",
)
_KEPT = 0.1


def read_books(folder: Path, split: Split) -> list[str]:
    """One text a book, lines of a paragraph joined. Raises `FileNotFoundError` naming the book."""
    texts = []
    for name in BOOKS:
        text = (folder / f"{name}.txt").read_text(encoding="utf-8")
        cut = int(len(text) * (1 - _KEPT))
        part = text[:cut] if split is Split.TRAIN else text[cut:]
        paragraphs = [" ".join(lines.split()) for lines in part.split("\n\n")]
        texts.append("\n\n".join(paragraph for paragraph in paragraphs if paragraph))
    return texts


def draw_prose(random: random.Random, books: list[str], num_chars: int) -> str:
    """A piece of a book, chosen by length, that begins with a paragraph or a sentence."""
    (book,) = random.choices(books, weights=[len(book) for book in books])
    start = random.randrange(max(len(book) - num_chars, 1))
    begin = book.find("\n\n", start, start + 2000)
    begin = begin + 2 if begin >= 0 else book.find(". ", start) + 2
    return book[begin : begin + num_chars]
