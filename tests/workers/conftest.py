"""Engines of several real workers over a tiny model, and who they are made of."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from draftmark import Engine, SamplingParams
from draftmark.core.errors import EngineFailure
from draftmark.engine.client import EngineClient
from tests.cpu.engine.conftest import GONE_S, assert_gone, socket_root
from tests.workers.tiny_model import write_tiny_model

__all__ = ["socket_root"]

# Four workers of one machine that run steps of tiny layers: threads would only get in the way.
SMALL = {
    "dtype": "float64",
    "device": "cpu",
    "threads": 1,
    "max_running": 8,
    "max_context": 256,
    "kv_pool_tokens": 1024,
    "prefill_tokens": 32,
}
# Longer than any step on a busy machine, shorter than a person's patience.
LIMIT_S = 5.0
IDLE_S = LIMIT_S + 1.0


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


class Log(logging.Handler):
    """What processes wrote."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def find(self, pattern: str) -> list[tuple[str, ...]]:
        """The groups of each line in which `pattern` is found."""
        return [match.groups() for line in self.lines if (match := re.search(pattern, line))]


@contextmanager
def logged() -> Iterator[Log]:
    logger, log = logging.getLogger("draftmark"), Log()
    level = logger.level
    logger.addHandler(log)
    logger.setLevel(logging.INFO)
    try:
        yield log
    finally:
        logger.removeHandler(log)
        logger.setLevel(level)


def open_engine(model: Path, **flags: Any) -> Engine:
    return Engine(str(model), **{**SMALL, "step_timeout_s": LIMIT_S, **flags})


def client_of(engine: Engine) -> EngineClient:
    return engine._engine.client


def pids_of(engine: Engine) -> list[int]:
    """The engine process, then its workers by number."""
    workers = msgspec.convert(engine.ready["worker_pids"], list[int])
    return [msgspec.convert(engine.ready["engine_pid"], int), *workers]


PREFIX = [7, 8, 9] * 12
# Prompts of one token, longer than a step may hold, with a shared beginning; greedy and not.
HISTORY: Sequence[tuple[list[int], SamplingParams]] = [
    (prompt, SamplingParams(max_tokens=count, temperature=heat, seed=seed, ignore_eos=True))
    for seed, (prompt, count, heat) in enumerate(
        [
            ([5], 40, 0.0),
            (list(range(10, 110)), 20, 0.0),
            (PREFIX, 30, 0.0),
            ([*PREFIX, 1, 2], 30, 0.7),
            ([*PREFIX, 1, 2, 3, 4], 12, 0.0),
            ([11, 12, 13], 60, 0.9),
            ([*PREFIX, *range(60)], 9, 0.0),
            ([200], 1, 0.0),
            (list(range(30, 63)), 25, 0.0),
            ([3, 1, 4, 1, 5], 33, 0.0),
            ([*PREFIX], 30, 0.0),
            ([99] * 150, 50, 0.5),
        ]
    )
]


def tokens_of_history(engine: Engine) -> list[list[int]]:
    """All requests at once, more than may run; twice, so that the second time the cache is warm."""
    return [*_burst(engine), *_burst(engine)]


def _burst(engine: Engine) -> list[list[int]]:
    async def burst() -> list[list[int]]:
        made = engine._engine
        completions = await asyncio.gather(
            *(made.generate([prompt], sampling) for prompt, sampling in HISTORY)
        )
        return [list(completion.token_ids) for [completion] in completions]

    return engine._thread.run(burst())


@pytest.fixture(scope="session")
def expected_tokens(model: Path) -> list[list[int]]:
    """What one worker with one stage gives."""
    with open_engine(model) as engine:
        return tokens_of_history(engine)


def failure_of(stream: Iterator[object]) -> str:
    with pytest.raises(EngineFailure) as caught:
        list(stream)
    return caught.value.message


def assert_ended(engine: Engine, timeout_s: float = GONE_S) -> None:
    """The engine process ends by itself with a status that is not 0, and nothing is left."""
    client = client_of(engine)
    deadline = time.monotonic() + timeout_s
    while not client._ended.is_set():
        assert time.monotonic() < deadline, "the engine does not end"
        time.sleep(0.02)
    assert client._process is not None
    assert client._process.child.poll() == 1
    assert_gone(pids_of(engine), timeout_s=0.0)
