"""Texts become a corpus: one row of token ids, kept beside the ledger that hands out windows."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from draftmark.bench.ledger.entries import Document
from draftmark.bench.prompts.prompt import sha256_of_ids
from draftmark.bench.prompts.random_ids import Ids
from draftmark.bench.tokenizer import BenchTokenizer
from draftmark.core.errors import ConfigError

# Texts are cut at the end of a line near this many characters, for tokenizers that are asked over
# HTTP; a file gives the same ids whoever cuts it.
_PIECE_CHARS = 65536


class Corpus(msgspec.Struct, frozen=True, kw_only=True):
    """`ids` [n] uint32 are all its documents, one after the other."""

    name: str
    tokenizer_sha256: str
    documents: list[Document]
    ids: Ids

    @property
    def tokens_sha256(self) -> str:
        return sha256_of_ids(self.ids)


def read_corpus(paths: Sequence[Path], *, name: str, tokenizer: BenchTokenizer) -> Corpus:
    """Files, and folders of .txt files in the order of their names. An .npy file holds token ids
    already, of the same tokenizer. Raises `ConfigError` for what cannot be read or comes twice."""
    documents: list[Document] = []
    parts: list[Ids] = []
    size = 0
    for path in _files(paths):
        content = _read(path)
        ids = _ids_of(path, content, tokenizer)
        sha256 = hashlib.sha256(content).hexdigest()
        if any(document.sha256 == sha256 for document in documents):
            raise ConfigError(f"{path}: the same text comes twice", param="corpus")
        documents.append(Document(name=path.name, sha256=sha256, start=size, end=size + len(ids)))
        parts.append(ids)
        size += len(ids)
    if not size:
        raise ConfigError(f"{', '.join(map(str, paths))}: no text for a corpus", param="corpus")
    return Corpus(
        name=name,
        tokenizer_sha256=tokenizer.sha256,
        documents=documents,
        ids=np.concatenate(parts),
    )


def store_ids(path: Path, ids: Ids) -> None:
    """Written beside and renamed: a file of that name is whole."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            file.write(np.asarray(ids, dtype="<u4").tobytes())
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from error


def load_ids(path: Path, *, num_tokens: int) -> Ids:
    """[num_tokens] uint32, mapped. Raises `ConfigError` when the file is not there or not whole."""
    if not path.is_file():
        raise ConfigError(f"{path}: the corpus's tokens are gone; add the same text again")
    if path.stat().st_size != 4 * num_tokens:
        raise ConfigError(f"{path}: {path.stat().st_size} bytes are not {num_tokens} tokens")
    return np.memmap(path, dtype="<u4", mode="r")


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.glob("*.txt")) if path.is_dir() else [path]


def _ids_of(path: Path, content: bytes, tokenizer: BenchTokenizer) -> Ids:
    if path.suffix == ".npy":
        return _stored_ids(path, content)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 ({error})", param="corpus") from error
    ids = [token for piece in _pieces(text) for token in tokenizer.encode(piece)]
    return np.array(ids, dtype=np.uint32)


def _stored_ids(path: Path, content: bytes) -> Ids:
    try:
        ids = np.load(io.BytesIO(content), allow_pickle=False)
    except (EOFError, ValueError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path}: no array of numpy ({error})", param="corpus") from error
    is_row = isinstance(ids, np.ndarray) and ids.ndim == 1 and ids.dtype.kind in "iu"
    if not is_row or (len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < 2**32):
        raise ConfigError(f"{path}: token ids are one row of whole numbers", param="corpus")
    return np.asarray(ids, dtype=np.uint32)


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = text.find("\n", start + _PIECE_CHARS)
        end = len(text) if end < 0 else end + 1
        yield text[start:end]
        start = end


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})", param="corpus") from error
