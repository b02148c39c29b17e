"""An engine for one command, by the Python API, and answers from it."""

from __future__ import annotations

import argparse
import logging
import sys
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from draftmark import Engine
from draftmark.cli.arguments import declared_from, given_from
from draftmark.cli.talk import Message, Piece
from draftmark.core.errors import DraftmarkError, EngineFailure
from draftmark.core.synthetic import rates_of, synthetic_mark
from draftmark.engine.results import Speculation

_KEPT_LINES = 200


@contextmanager
def open_engine(given: argparse.Namespace) -> Iterator[Engine]:
    """A ready engine for parsed arguments; everything it started is gone afterwards.

    Phases of the start are shown in a terminal. The log is kept back, and shown if the engine
    fails: the one line of an error says what, the log says where.
    """
    declared_from(given)  # refuses what is wrong before anything starts
    with (
        _held_back_log(),
        Engine(config=given.config, progress=_show, **given_from(given)) as engine,
    ):
        yield engine


def _show(phase: str) -> None:
    if sys.stderr.isatty():
        print(f"{phase} ...", file=sys.stderr)


class _Keeper(logging.Handler):
    """Keeps the last lines of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=_KEPT_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextmanager
def _held_back_log() -> Iterator[None]:
    keeper = _Keeper()
    keeper.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(keeper)
    try:
        yield
    except Exception as error:  # only to show the log; it goes on as it was
        if isinstance(error, EngineFailure) or not isinstance(error, DraftmarkError):
            print("\n".join(keeper.lines), file=sys.stderr)
        raise
    finally:
        root.removeHandler(keeper)


class LocalTalker:
    """Speaks to an engine of our own."""

    def __init__(self, engine: Engine, *, model: str, sampling: dict[str, Any]) -> None:
        self._engine = engine
        self._model = model
        self._sampling = sampling

    @property
    def name(self) -> str:
        ready = self._engine.ready
        return f"{self._model} in {ready['dtype']}, context {ready['max_context']}"

    def answer(
        self, messages: list[Message], *, max_tokens: int | None
    ) -> Generator[Piece, None, None]:
        count, mark = 0, synthetic_mark(rates_of(self._engine.ready))
        deltas = self._engine.stream_chat(messages, max_tokens=max_tokens, **self._sampling)
        for delta in deltas:
            count += len(delta.token_ids)
            finish = None if delta.finish is None else delta.finish.value
            drafts = Speculation.of([delta.drafts])
            yield Piece(
                text=delta.text,
                num_tokens=count,
                acceptance_length=None if drafts is None else drafts.acceptance_length,
                finish=finish,
                mark=mark,
            )
