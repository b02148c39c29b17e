"""Words of the English books and pieces of them, for whatever could have any name.

Copying a word must not rest on having seen it copied before: names, things and values of training
are mostly drawn from these thousands. Left out of the words is every one that the declared material
uses: there it carries meaning, or is held out. The pieces, of which names are put together, are
what a tokenizer is likely to make of words: every token should have been copied in some name.

python -m training.tiny.data.open_words BOOKS   writes words.txt and pieces.txt anew
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path

from training.tiny.conversation import Split
from training.tiny.data.prose import read_books

_FOLDER = Path(__file__).parent
_WORDS, _PIECES = _FOLDER / "words.txt", _FOLDER / "pieces.txt"
_NUM_WORDS, _NUM_PIECES = 9000, 5000
_DECLARATIONS = (
    "arithmetic.py",
    "arithmetic_clauses.py",
    "arithmetic_composed.py",
    "arithmetic_families.py",
    "arithmetic_frames.py",
    "arithmetic_held_out.py",
    "arithmetic_nouns.py",
    "arithmetic_parts.py",
    "tool_catalogue.py",
    "tool_held_out.py",
    "tool_wordings.py",
)


@cache
def open_words() -> tuple[str, ...]:
    return tuple(_WORDS.read_text(encoding="utf-8").split())


@cache
def open_pieces() -> tuple[str, ...]:
    return tuple(_PIECES.read_text(encoding="utf-8").split())


def excluded_words() -> set[str]:
    texts = ((_FOLDER / name).read_text(encoding="utf-8") for name in _DECLARATIONS)
    return set(re.findall(r"[a-z]+", " ".join(texts).lower()))


def common_words(counts: Counter[str]) -> list[str]:
    """The most frequent words that are left, in the order of the alphabet."""
    excluded = excluded_words()
    kept = (
        word
        for word, _ in counts.most_common()
        if 3 <= len(word) <= 10 and word.islower() and word not in excluded
    )
    return sorted(word for word, _ in zip(kept, range(_NUM_WORDS), strict=False))


def common_pieces(counts: Counter[str]) -> list[str]:
    """Runs of letters by the letters that they save, as merging pairs would find them."""
    saved: Counter[str] = Counter()
    for word, count in counts.items():
        small = word.lower()
        for start in range(len(small)):
            for end in range(start + 2, min(start + 9, len(small) + 1)):
                saved[small[start:end]] += count * (end - start - 1)
    return sorted(piece for piece, _ in saved.most_common(_NUM_PIECES))


def _count_words(books: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in read_books(books, Split.TRAIN):
        counts.update(re.findall(r"(?<![\w'])[A-Za-z][a-z]+(?![\w'])", text))
    return counts


if __name__ == "__main__":
    found = _count_words(Path(sys.argv[1]))
    _WORDS.write_text("\n".join(common_words(found)) + "\n", encoding="utf-8")
    _PIECES.write_text("\n".join(common_pieces(found)) + "\n", encoding="utf-8")
