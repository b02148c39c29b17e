"""A small tokenizer file, and corpora of numbered tokens, for tests of prompts and ledgers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from draftmark.bench.ledger.corpus import Corpus
from draftmark.bench.ledger.entries import Document
from draftmark.bench.tokenizer import FileTokenizer
from tests.fakes.tokenizer import byte_level


def file_tokenizer(folder: Path, *, bos: bool = False) -> FileTokenizer:
    path = folder / "tokenizer.json"
    byte_level(bos=bos).save(str(path))
    return FileTokenizer(path)


def numbered(size: int, *, name: str = "books", tokenizer: str = "t" * 64) -> Corpus:
    """A corpus of `size` tokens in which no 16 in a row come twice."""
    document = Document(name=f"{name}.txt", sha256=f"{name:0<64}", start=0, end=size)
    return Corpus(
        name=name,
        tokenizer_sha256=tokenizer,
        documents=[document],
        ids=np.arange(size, dtype=np.uint32),
    )
