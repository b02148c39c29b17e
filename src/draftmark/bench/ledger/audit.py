"""Proves from the file that no window was handed out twice, and that every run has its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from draftmark.bench.ledger.entries import Entry, Reserved, Use
from draftmark.bench.ledger.journal import read_journal, torn_error
from draftmark.bench.ledger.ledger import Ledger, window_edges
from draftmark.bench.ledger.state import (
    CorpusState,
    LedgerState,
    Status,
    Window,
    fold,
    overlap,
)
from draftmark.bench.profile import PromptSource
from draftmark.bench.prompts.prompt import sha256_of_ids
from draftmark.core.errors import ConfigError


class RunProfile(msgspec.Struct, frozen=True):
    source: PromptSource


class RunWindow(msgspec.Struct, frozen=True, kw_only=True):
    corpus: str
    window: tuple[int, int]
    line_sha: str


class RunOnDisk(msgspec.Struct, frozen=True, kw_only=True):
    """What a `run.json` says of its window; its other keys are not looked at."""

    run_id: str
    profile: RunProfile
    ledger: RunWindow | None


def audit(ledger: Ledger, *, runs: Path | None = None) -> list[str]:
    """Faults, one sentence each; none means that the ledger is sound. `runs` is the folder of the
    runs' folders. Raises `ConfigError` where there is no ledger at all."""
    try:
        reading = read_journal(ledger.path)
        state = fold(reading.entries, torn_bytes=len(reading.torn))
    except ConfigError as error:
        if not ledger.path.exists():
            raise
        return [error.message]
    faults = [torn_error(ledger.path, reading).message] if reading.torn else []
    for corpus in state.corpora.values():
        faults += [*_overlaps(corpus), *_wrong_tokens(ledger, corpus)]
    if runs is not None:
        faults += _runs_without_window(state, runs)
    return faults


def export(state: LedgerState) -> dict[str, Any]:
    """The whole of it for other programs: corpora with what is left, and every window."""
    return {
        "ledger": state.ledger,
        "lines": state.num_lines,
        "corpora": [
            {
                **_plain(corpus.added),
                "imported": corpus.used_until,
                "left": corpus.num_left,
                "free": corpus.free(),
            }
            for corpus in state.corpora.values()
        ],
        "windows": [
            {
                "line_sha": window.line_sha,
                "status": window.status.value,
                **_plain(window.entry),
            }
            for corpus in state.corpora.values()
            for window in corpus.windows
        ],
    }


def _overlaps(corpus: CorpusState) -> Iterator[str]:
    """Pairs of windows that must not share a token, in the order in which they were reserved."""
    name = corpus.added.corpus
    earlier: list[Window] = []
    for window in corpus.live:
        entry = window.entry
        if not 0 <= entry.start < entry.end <= corpus.added.num_tokens:
            yield f"{name}: {_shown(entry)} is not inside the corpus"
        if entry.use is Use.FRESH and entry.start < window.imported_before:
            yield f"{name}: {_shown(entry)} had been used elsewhere before"
        for other in earlier:
            if overlap(window.span, other.span) and not _may_share(window, other):
                yield f"{name}: {_shown(entry)} overlaps {_shown(other.entry)}"
        earlier.append(window)


def _may_share(window: Window, earlier: Window) -> bool:
    match window.entry.use:
        case Use.FRESH:
            return False
        case Use.PAIRED:
            return window.entry.start_id != earlier.entry.start_id
        case Use.SHIFTED:
            return not set(window.prompt_starts).intersection(earlier.prompt_starts)
        case Use.REUSED:
            return True


def _wrong_tokens(ledger: Ledger, corpus: CorpusState) -> Iterator[str]:
    added = corpus.added
    try:
        tokens = ledger.tokens(added)
    except ConfigError as error:
        yield error.message
        return
    if sha256_of_ids(tokens) != added.tokens_sha256:
        yield f"{added.corpus}: the tokens beside the ledger are not those that were added"
        return
    for window in corpus.live:
        entry = window.entry
        found = window_edges(tokens, entry.start, entry.end)
        if found != {"head_sha": entry.head_sha, "tail_sha": entry.tail_sha}:
            yield f"{added.corpus}: {_shown(entry)} does not hold the tokens it was reserved with"


def _runs_without_window(state: LedgerState, runs: Path) -> Iterator[str]:
    windows = {
        window.line_sha: window for corpus in state.corpora.values() for window in corpus.windows
    }
    for path in sorted(runs.glob("*/run.json")):
        try:
            run = msgspec.json.decode(path.read_bytes(), type=RunOnDisk)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            yield f"{path}: cannot be read ({error})"
            continue
        if run.ledger is None:
            if run.profile.source is PromptSource.LEDGER:
                yield f"{path}: prompts from a ledger, and no window"
            continue
        window = windows.get(run.ledger.line_sha)
        fault = "is in no line of this ledger" if window is None else _mismatch(run, window)
        if fault:
            yield f"{path}: its window {run.ledger.window} {fault}"


def _mismatch(run: RunOnDisk, window: Window) -> str | None:
    assert run.ledger is not None, "looked at before"
    entry = window.entry
    if window.status is Status.VOID:
        return "was given back as never sent"
    if (entry.run_id, entry.corpus, window.span) != (
        run.run_id,
        run.ledger.corpus,
        run.ledger.window,
    ):
        return f"is not that of its line: {_shown(entry)}"
    return None


def _shown(entry: Reserved) -> str:
    return f"[{entry.start}, {entry.end}) of run {entry.run_id} ({entry.use})"


def _plain(entry: Entry) -> dict[str, Any]:
    """Without what only a line of the file needs."""
    plain: dict[str, Any] = msgspec.to_builtins(entry)
    return {key: item for key, item in plain.items() if key not in ("prev", "kind")}
