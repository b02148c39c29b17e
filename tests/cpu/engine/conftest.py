"""Real engine processes over a fake worker process, and the proof that nothing stays behind."""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from draftmark.core.messages import RequestOutput
from draftmark.core.request import FinishReason, SamplingParams
from draftmark.core.resolve import load_config
from draftmark.engine.client import EngineClient
from draftmark.engine.requests import ModelLimits, RequestMaker
from draftmark.engine.stream import OutputStream
from tests.fakes import worker_process
from tests.fakes.tokenizer import write_model_dir

GONE_S = 10.0
REPORT = re.compile(r"draftmark-stacks-([0-9a-f]{8})-\w+\.txt")


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory whose worker is a fake: a tokenizer and an empty config."""
    directory = write_model_dir(tmp_path_factory.mktemp("model") / "fake")
    (directory / "config.json").write_text("{}")
    return directory


@pytest.fixture
def socket_root() -> Iterator[Path]:
    """Where sockets' directories are made."""
    with temporary_root() as root:
        yield root


@contextmanager
def temporary_root() -> Iterator[Path]:
    """The directory for temporary files; empty again at the end, but for one report of stacks an
    engine that failed. Short, as sockets want it."""
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="dm-", dir="/tmp") as name,
    ):
        patch.setattr(tempfile, "tempdir", name)
        patch.setenv("TMPDIR", name)
        yield Path(name)
        left = sorted(path.name for path in Path(name).iterdir())
        starts = [match[1] for word in left if (match := REPORT.fullmatch(word))]
        assert len(starts) == len(left), f"left behind: {left}"
        assert len(set(starts)) == len(starts), f"two reports of one engine: {left}"


@dataclass(slots=True)
class Harness:
    """Starts clients over fake workers and makes requests for them."""

    model_dir: Path
    clients: list[EngineClient] = field(default_factory=list)
    pids: set[int] = field(default_factory=set)

    async def start(
        self,
        *,
        faults: dict[str, object] | None = None,
        options: dict[str, Any] | None = None,
        **flags: object,
    ) -> EngineClient:
        client = self.launch(faults=faults, options=options, **flags)
        await client.wait_ready()
        self.pids |= set(pids_of(client))
        return client

    def launch(
        self,
        *,
        faults: dict[str, object] | None = None,
        options: dict[str, Any] | None = None,
        **flags: object,
    ) -> EngineClient:
        given = {"model": str(self.model_dir), "max_running": 8, **flags}
        client = EngineClient.launch(
            load_config(given), worker=worker_process.command(**(faults or {})), **(options or {})
        )
        self.clients.append(client)
        return client


def pids_of(client: EngineClient) -> list[int]:
    """The engine process and its workers."""
    workers = msgspec.convert(client.ready["worker_pids"], list[int])
    return [msgspec.convert(client.ready["engine_pid"], int), *workers]


@pytest.fixture
async def harness(model_dir: Path, socket_root: Path) -> AsyncIterator[Harness]:
    made = Harness(model_dir)
    yield made
    for client in made.clients:
        await client.close()
        assert client.state.state == "failed" or not reports_of(client), "a report of nothing"
    assert_gone(made.pids)


def reports_of(client: EngineClient) -> list[Path]:
    """The files in which its engine wrote what every rank was at."""
    return [
        path
        for path in Path(tempfile.gettempdir()).iterdir()
        if (match := REPORT.fullmatch(path.name)) and match[1] == client.start_id[:8]
    ]


def take_report(client: EngineClient) -> str:
    """The one report of its engine, which is then gone."""
    [path] = reports_of(client)
    text = path.read_text()
    path.unlink()
    return text


def assert_gone(pids: Sequence[int] | set[int], timeout_s: float = GONE_S) -> None:
    """Wait until none of these processes runs. An orphan that is dead but not yet reaped by init
    does not run."""
    deadline = time.monotonic() + timeout_s
    while alive := [pid for pid in pids if _runs(pid)]:
        if time.monotonic() > deadline:
            for pid in alive:
                psutil.Process(pid).kill()
            raise AssertionError(f"left behind: {alive}")
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def submit(
    client: EngineClient, prompts: Sequence[Sequence[int]], **fields: Any
) -> list[OutputStream]:
    maker = RequestMaker(ModelLimits.from_ready(client.ready), seed=0)
    ids = client.new_ids(len(prompts))
    sampling = SamplingParams(**{"seed": 7, **fields})
    requests = [maker.make(i, prompt, sampling) for i, prompt in zip(ids, prompts, strict=True)]
    return client.submit(requests)


async def read(stream: OutputStream) -> tuple[list[int], RequestOutput]:
    """All tokens and the output that ended the stream, after which nothing came."""
    tokens: list[int] = []
    ends: list[RequestOutput] = []
    async for output in stream:
        tokens += output.token_ids
        if output.finish is not None:
            ends.append(output)
    assert len(ends) == 1
    return tokens, ends[0]


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


LENGTH, STOP, ABORT, ERROR = (
    FinishReason.LENGTH,
    FinishReason.STOP,
    FinishReason.ABORT,
    FinishReason.ERROR,
)
