"""What a ledger's lines come to: the corpora, their windows, and what is left of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

import msgspec

from draftmark.bench.ledger.entries import (
    Committed,
    CorpusAdded,
    Entry,
    Imported,
    Opened,
    Reserved,
    Voided,
)
from draftmark.core.errors import ConfigError

Span = tuple[int, int]  # [start, end)


class Status(StrEnum):
    """Of a window. One that is only reserved counts as sent: its run may have died on the way."""

    RESERVED = "reserved"
    COMMITTED = "committed"
    VOID = "void"


class Window(msgspec.Struct, kw_only=True):
    """`imported_before` is how much of the corpus was known as used elsewhere when the window was
    reserved."""

    line_sha: str
    entry: Reserved
    imported_before: int
    status: Status = Status.RESERVED

    @property
    def span(self) -> Span:
        return (self.entry.start, self.entry.end)

    @property
    def prompt_starts(self) -> range:
        return range(self.entry.start, self.entry.end, self.entry.prompt_tokens)


class CorpusState(msgspec.Struct, kw_only=True):
    added: CorpusAdded
    used_until: int = 0
    windows: list[Window] = []

    @property
    def live(self) -> list[Window]:
        return [window for window in self.windows if window.status is not Status.VOID]

    def used(self) -> list[Span]:
        """What was ever sent, or may have been, merged."""
        return merged([(0, self.used_until), *(window.span for window in self.live)])

    def free(self) -> list[Span]:
        """What was never sent to anything."""
        return list(_gaps(self.used(), self.added.num_tokens))

    @property
    def num_left(self) -> int:
        return sum(end - start for start, end in self.free())

    def runs_left(self, num_tokens: int) -> int:
        """How many fresh windows of that size fit."""
        return sum((end - start) // num_tokens for start, end in self.free())


class LedgerState(msgspec.Struct, kw_only=True):
    """`torn_bytes` of a last line that was not written to its end."""

    ledger: str
    num_lines: int
    torn_bytes: int
    corpora: dict[str, CorpusState]

    def corpus(self, name: str) -> CorpusState:
        if name not in self.corpora:
            known = ", ".join(self.corpora) or "none"
            raise ConfigError(f"the ledger has no corpus {name}; it has {known}", param="corpus")
        return self.corpora[name]

    def window(self, line_sha: str) -> Window:
        for corpus in self.corpora.values():
            for window in corpus.windows:
                if window.line_sha == line_sha:
                    return window
        raise ConfigError(f"the ledger has no reservation {line_sha[:12]}")

    def open_window(self, line_sha: str) -> Window:
        """One that was neither committed nor voided yet. Raises `ConfigError`."""
        window = self.window(line_sha)
        if window.status is not Status.RESERVED:
            raise ConfigError(f"the window of run {window.entry.run_id} is {window.status} already")
        return window


def fold(entries: Iterable[tuple[str, Entry]], *, torn_bytes: int = 0) -> LedgerState:
    """Raises `ConfigError` for an entry about something that is not there, and for a second one of
    what there can be only one of."""
    state = LedgerState(ledger="", num_lines=0, torn_bytes=torn_bytes, corpora={})
    for sha, entry in entries:
        state.num_lines += 1
        match entry:
            case Opened():
                state.ledger = entry.ledger
            case CorpusAdded():
                if entry.corpus in state.corpora:
                    raise ConfigError(f"the ledger has a corpus {entry.corpus} twice")
                state.corpora[entry.corpus] = CorpusState(added=entry)
            case Imported():
                corpus = state.corpus(entry.corpus)
                corpus.used_until = max(corpus.used_until, entry.used_until)
            case Reserved():
                corpus = state.corpus(entry.corpus)
                corpus.windows.append(
                    Window(line_sha=sha, entry=entry, imported_before=corpus.used_until)
                )
            case Committed():
                state.open_window(entry.line_sha).status = Status.COMMITTED
            case Voided():
                state.open_window(entry.line_sha).status = Status.VOID
    return state


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same tokens in as few spans as possible, in order, without empty ones."""
    result: list[Span] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def summary(corpus: CorpusState, *, run_tokens: int | None = None) -> dict[str, Any]:
    """Figures for `status`. `run_tokens` is what one run of a plan consumes."""
    free = corpus.free()
    by_status = {status.value: 0 for status in Status}
    for window in corpus.windows:
        by_status[window.status] += 1
    return {
        "num_tokens": corpus.added.num_tokens,
        "imported": corpus.used_until,
        "left": corpus.num_left,
        "largest_free": max((end - start for start, end in free), default=0),
        "windows": by_status,
        "runs_left": None if run_tokens is None else corpus.runs_left(run_tokens),
    }


def _gaps(used: list[Span], size: int) -> Iterator[Span]:
    at = 0
    for start, end in used:
        if at < start:
            yield (at, start)
        at = end
    if at < size:
        yield (at, size)
