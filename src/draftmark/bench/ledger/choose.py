"""Which window a run gets. No prompt of it begins with the 16 tokens that an earlier one began
with, whatever the offsets: books repeat themselves, and a cache knows only the content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from draftmark.bench.ledger.entries import Use
from draftmark.bench.ledger.state import CorpusState, Span, Window, merged, overlap
from draftmark.bench.prompts.prompt import HEAD_TOKENS
from draftmark.bench.prompts.random_ids import Ids
from draftmark.core.errors import ConfigError

# How far a window may move on to get away from text that repeats.
_MOST_TRIES = 4096


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """`num_prompts` prompts of `prompt_tokens` each, in one window. Paired windows are of one start
    of a server (`start_id`) that shares no cache with another (`isolated`). `start` is where a
    reused window begins."""

    num_prompts: int
    prompt_tokens: int
    use: Use = Use.FRESH
    start_id: str | None = None
    isolated: bool = False
    start: int | None = None

    @property
    def num_tokens(self) -> int:
        return self.num_prompts * self.prompt_tokens


def choose_start(corpus: CorpusState, tokens: Ids, order: Order) -> int:
    """Where the window begins. `tokens` is the whole corpus, [n] uint32. Raises `ConfigError` with
    figures when there is no such window."""
    _check(order)
    match order.use:
        case Use.FRESH:
            return _fresh(corpus, tokens, order)
        case Use.PAIRED:
            return _paired(corpus, tokens, order)
        case Use.SHIFTED:
            return _shifted(corpus, tokens, order)
        case Use.REUSED:
            return _reused(corpus, order)


def _check(order: Order) -> None:
    if order.num_prompts < 1 or order.prompt_tokens < 1:
        raise ConfigError("a window holds at least one prompt of at least one token")
    if (order.use is Use.REUSED) != (order.start is not None):
        raise ConfigError("a place to begin at belongs to use reused")
    if order.use is Use.PAIRED and (order.start_id is None or not order.isolated):
        raise ConfigError(
            "a paired window needs the id of the server's start, and a server that shares no cache "
            "with another"
        )


def _fresh(corpus: CorpusState, tokens: Ids, order: Order) -> int:
    start = _first_fit(corpus.free(), tokens, order, seen=_heads(corpus.live, tokens))
    if start is None:
        raise _too_small(corpus, order)
    return start


def _paired(corpus: CorpusState, tokens: Ids, order: Order) -> int:
    """The first window that other starts had and this one did not; else a fresh one."""
    mine = [window for window in corpus.live if window.entry.start_id == order.start_id]
    seen = _heads(mine, tokens)
    pairs = (window for window in corpus.live if window.entry.use is Use.PAIRED)
    for span in sorted({w.span for w in pairs if w.entry.prompt_tokens == order.prompt_tokens}):
        is_mine = any(overlap(span, window.span) for window in mine)
        if span[1] - span[0] == order.num_tokens and not is_mine:
            start = _first_fit([span], tokens, order, seen=seen)
            if start is not None:
                return start
    return _fresh(corpus, tokens, order)


def _shifted(corpus: CorpusState, tokens: Ids, order: Order) -> int:
    """Inside of what this ledger saw used; of an imported part nobody knows where prompts began."""
    known = [span for span in _known_used(corpus) if span[1] - span[0] >= order.num_tokens]
    start = _first_fit(known, tokens, order, seen=_heads(corpus.live, tokens))
    if start is None:
        longest = max((end - begin for begin, end in _known_used(corpus)), default=0)
        raise ConfigError(
            f"corpus {corpus.added.corpus}: a shifted window of {order.num_tokens} tokens needs "
            f"more than that many used ones in a row, and the longest such part has {longest}: "
            "take random ids, or fewer prompts",
            param="corpus",
        )
    return start


def _reused(corpus: CorpusState, order: Order) -> int:
    assert order.start is not None, "checked before"
    if order.start < 0 or order.start + order.num_tokens > corpus.added.num_tokens:
        raise ConfigError(
            f"corpus {corpus.added.corpus}: [{order.start}, {order.start + order.num_tokens}) is "
            f"not inside its {corpus.added.num_tokens} tokens",
            param="start",
        )
    return order.start


def _first_fit(spans: Iterable[Span], tokens: Ids, order: Order, *, seen: set[bytes]) -> int | None:
    for begin, end in spans:
        last = end - order.num_tokens
        for start in range(begin, min(last, begin + _MOST_TRIES) + 1):
            if _is_new(start, tokens, order, seen):
                return start
    return None


def _is_new(start: int, tokens: Ids, order: Order, seen: set[bytes]) -> bool:
    starts = range(start, start + order.num_tokens, order.prompt_tokens)
    heads = [_head(tokens, at) for at in starts]
    return len(set(heads)) == len(heads) and not seen.intersection(heads)


def _heads(windows: Iterable[Window], tokens: Ids) -> set[bytes]:
    return {_head(tokens, at) for window in windows for at in window.prompt_starts}


def _head(tokens: Ids, at: int) -> bytes:
    """Of shorter prompts too: one of 5 tokens is the beginning of one of 500 at the same place."""
    return tokens[at : at + HEAD_TOKENS].tobytes()


def _known_used(corpus: CorpusState) -> Iterator[Span]:
    for start, end in merged(window.span for window in corpus.live):
        if max(start, corpus.used_until) < end:
            yield (max(start, corpus.used_until), end)


def _too_small(corpus: CorpusState, order: Order) -> ConfigError:
    free = corpus.free()
    largest = max((end - start for start, end in free), default=0)
    if largest >= order.num_tokens:
        return ConfigError(
            f"corpus {corpus.added.corpus}: the text repeats itself: wherever a window of "
            f"{order.num_tokens} tokens begins, two prompts would begin alike; take another length",
            param="corpus",
        )
    return ConfigError(
        f"corpus {corpus.added.corpus} is too small: {order.num_prompts} prompts of "
        f"{order.prompt_tokens} are {order.num_tokens} tokens in a row, {corpus.num_left} of "
        f"{corpus.added.num_tokens} were never sent, the longest part {largest}: add text with "
        "`ledger add`, or take shorter or fewer prompts, or windows paired by start",
        param="corpus",
    )
