"""The lines of a ledger. Each carries the SHA-256 of the line before, so that none can be changed,
taken out or put in without a trace."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

FIRST = "0" * 64


class Use(StrEnum):
    """Fresh: never sent to anything. Paired: once per start of a server, other starts may have seen
    it. Shifted: used text at another offset, so no prompt begins as an earlier one did. Reused:
    whatever the caller wants, and marked so."""

    FRESH = "fresh"
    PAIRED = "paired"
    SHIFTED = "shifted"
    REUSED = "reused"


class Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", forbid_unknown_fields=True):
    """`prev` is the SHA-256 of the line before, `at` the time in UTC."""

    prev: str
    at: str


class Opened(Line, frozen=True, kw_only=True, tag="opened"):
    ledger: str
    version: Literal[1] = 1


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of a corpus; its tokens are [start, end) of the corpus."""

    name: str
    sha256: str
    start: int
    end: int


class CorpusAdded(Line, frozen=True, kw_only=True, tag="corpus"):
    """`tokens_sha256` is of all token ids as little-endian 32-bit numbers."""

    corpus: str
    tokenizer_sha256: str
    tokens_sha256: str
    num_tokens: int
    documents: list[Document]


class Imported(Line, frozen=True, kw_only=True, tag="imported"):
    """[0, used_until) was sent before this ledger knew of it, in prompts that nobody recorded."""

    corpus: str
    used_until: int
    note: str


class Reserved(Line, frozen=True, kw_only=True, tag="reserve"):
    """[start, end) is for one run, in prompts of `prompt_tokens`. `head_sha` and `tail_sha` are of
    its first and last 16 tokens."""

    run_id: str
    corpus: str
    start: int
    end: int
    prompt_tokens: int
    use: Use
    start_id: str | None
    head_sha: str
    tail_sha: str


class Committed(Line, frozen=True, kw_only=True, tag="commit"):
    """The run of the reservation on line `line_sha` sent what it had."""

    line_sha: str


class Voided(Line, frozen=True, kw_only=True, tag="void"):
    """Not one byte of that reservation was sent: its window is free again."""

    line_sha: str
    reason: str


class Repaired(Line, frozen=True, kw_only=True, tag="repair"):
    """A last line that was not written to its end was cut off."""

    torn_sha256: str
    torn_bytes: int


Entry = Opened | CorpusAdded | Imported | Reserved | Committed | Voided | Repaired
