"""The ledger as its users see it: add a corpus, reserve a window for a run, commit or void it.

A reservation is on the disk before the caller learns of it. One that is never committed stays used:
its run may have sent some of it before it died.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from draftmark.bench.ledger.choose import Order, choose_start
from draftmark.bench.ledger.corpus import Corpus, load_ids, store_ids
from draftmark.bench.ledger.entries import (
    Committed,
    CorpusAdded,
    Imported,
    Reserved,
    Use,
    Voided,
)
from draftmark.bench.ledger.journal import Reading, locked, read_journal
from draftmark.bench.ledger.state import CorpusState, LedgerState, fold
from draftmark.bench.prompts.prompt import HEAD_TOKENS, sha256_of_ids
from draftmark.bench.prompts.random_ids import Ids
from draftmark.bench.result import LedgerUse
from draftmark.core.errors import ConfigError


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens [start, end) of a corpus are this run's. `line_sha` names it in the ledger."""

    line_sha: str
    run_id: str
    corpus: str
    start: int
    end: int
    use: Use

    def in_result(self) -> LedgerUse:
        return LedgerUse(
            corpus=self.corpus,
            window=(self.start, self.end),
            klass=self.use,
            line_sha=self.line_sha,
        )


class Ledger:
    """One file, for any number of processes. The tokens of its corpora lie beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def state(self) -> LedgerState:
        """As it is now; a torn last line is counted, not raised."""
        return _fold(read_journal(self.path))

    def tokens(self, corpus: CorpusAdded) -> Ids:
        """[num_tokens] uint32, mapped from the disk."""
        return load_ids(self.tokens_path(corpus.tokens_sha256), num_tokens=corpus.num_tokens)

    def tokens_path(self, tokens_sha256: str) -> Path:
        return self.path.with_name(f"{self.path.stem}.tokens") / f"{tokens_sha256[:32]}.u32"

    def add(self, corpus: Corpus, *, used_until: int = 0, note: str = "") -> CorpusState:
        """A new corpus, of which [0, used_until) was used elsewhere. The ledger is begun if there
        is none. Text that is in it already is refused: under two names it would be used twice."""
        with locked(self.path, create=True) as session:
            state = _fold(session.reading)
            _check_new(state, corpus)
            _check_used(used_until, len(corpus.ids), corpus.name)
            store_ids(self.tokens_path(corpus.tokens_sha256), corpus.ids)
            session.append(
                lambda prev, at: CorpusAdded(
                    prev=prev,
                    at=at,
                    corpus=corpus.name,
                    tokenizer_sha256=corpus.tokenizer_sha256,
                    tokens_sha256=corpus.tokens_sha256,
                    num_tokens=len(corpus.ids),
                    documents=corpus.documents,
                )
            )
            if used_until:
                session.append(_imported(corpus.name, used_until, note))
            return _fold(session.reading).corpus(corpus.name)

    def import_used(self, corpus: str, *, used_until: int, note: str = "") -> CorpusState:
        """[0, used_until) of a corpus that is here turns out to have been used elsewhere."""
        with locked(self.path) as session:
            state = _fold(session.reading).corpus(corpus)
            _check_used(used_until, state.added.num_tokens, corpus)
            if used_until <= state.used_until:
                raise ConfigError(f"corpus {corpus}: {state.used_until} tokens are used already")
            session.append(_imported(corpus, used_until, note))
            return _fold(session.reading).corpus(corpus)

    def reserve(self, run_id: str, corpus: str, order: Order) -> Reservation:
        """A window that nobody else has. Raises `ConfigError` with figures when none is left."""
        with locked(self.path) as session:
            state = _fold(session.reading)
            of_corpus = state.corpus(corpus)
            if any(w.entry.run_id == run_id for c in state.corpora.values() for w in c.live):
                raise ConfigError(f"run {run_id} has a window already", param="run_id")
            tokens = self.tokens(of_corpus.added)
            start = choose_start(of_corpus, tokens, order)
            end = start + order.num_tokens
            line_sha = session.append(
                lambda prev, at: Reserved(
                    prev=prev,
                    at=at,
                    run_id=run_id,
                    corpus=corpus,
                    start=start,
                    end=end,
                    prompt_tokens=order.prompt_tokens,
                    use=order.use,
                    start_id=order.start_id,
                    **window_edges(tokens, start, end),
                )
            )
        return Reservation(
            line_sha=line_sha, run_id=run_id, corpus=corpus, start=start, end=end, use=order.use
        )

    def commit(self, line_sha: str) -> None:
        """The run is over; what it sent stays used."""
        with locked(self.path) as session:
            _fold(session.reading).open_window(line_sha)
            session.append(lambda prev, at: Committed(prev=prev, at=at, line_sha=line_sha))

    def void(self, line_sha: str, *, bytes_sent: int, reason: str) -> None:
        """Give a window back. Only when nothing of it was sent: else it is burnt, and
        `ConfigError`."""
        with locked(self.path) as session:
            window = _fold(session.reading).open_window(line_sha)
            if bytes_sent:
                raise ConfigError(
                    f"{bytes_sent} bytes of run {window.entry.run_id} were sent: its window is used"
                )
            session.append(
                lambda prev, at: Voided(prev=prev, at=at, line_sha=line_sha, reason=reason)
            )

    def repair(self) -> int:
        """Cut off a torn last line; how many bytes it had."""
        with locked(self.path) as session:
            return session.repair()


def _fold(reading: Reading) -> LedgerState:
    return fold(reading.entries, torn_bytes=len(reading.torn))


def _imported(corpus: str, used_until: int, note: str) -> Callable[[str, str], Imported]:
    return lambda prev, at: Imported(
        prev=prev, at=at, corpus=corpus, used_until=used_until, note=note
    )


def window_edges(tokens: Ids, start: int, end: int) -> dict[str, str]:
    """Hashes of the first and last 16 tokens of [start, end)."""
    return {
        "head_sha": sha256_of_ids(tokens[start : min(start + HEAD_TOKENS, end)]),
        "tail_sha": sha256_of_ids(tokens[max(start, end - HEAD_TOKENS) : end]),
    }


def _check_new(state: LedgerState, corpus: Corpus) -> None:
    if corpus.name in state.corpora:
        raise ConfigError(f"the ledger has a corpus {corpus.name} already", param="corpus")
    shas = {document.sha256 for document in corpus.documents}
    for name, other in state.corpora.items():
        if other.added.tokenizer_sha256 != corpus.tokenizer_sha256:
            continue
        for document in other.added.documents:
            if document.sha256 in shas:
                raise ConfigError(
                    f"{document.name} is in corpus {name} already, cut by the same tokenizer",
                    param="corpus",
                )


def _check_used(used_until: int, num_tokens: int, corpus: str) -> None:
    if not 0 <= used_until <= num_tokens:
        raise ConfigError(
            f"corpus {corpus} has {num_tokens} tokens: {used_until} of them cannot have been used",
            param="used_until",
        )
