"""Whatever dies, hangs or lies: requests end with a reason, and nothing of ours stays behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from draftmark.core.errors import (
    BudgetError,
    CheckpointError,
    ConfigError,
    DraftmarkError,
    EngineFailure,
    NotBuilt,
    Unavailable,
)
from draftmark.engine.client import EngineClient
from draftmark.engine.stream import OutputStream
from tests.cpu.engine.conftest import (
    ERROR,
    GONE_S,
    Harness,
    assert_gone,
    pids_of,
    read,
    reports_of,
    submit,
    take_report,
)

ROOT = Path(__file__).resolve().parents[3]


async def _fails_within(
    client: EngineClient, streams: list[OutputStream], *words: str, seconds: float = GONE_S
) -> None:
    """Every stream ends with an error in which each of `words` is found; then nothing is left of
    the engine."""
    async with asyncio.timeout(seconds):
        for stream in streams:
            _, end = await read(stream)
            assert (end.finish, end.error_status) == (ERROR, 500)
            for word in words:
                assert re.search(word, end.error), end.error
        state = await client.wait_ended()
    assert state.state == "failed"
    with pytest.raises(Unavailable, match="failed"):
        submit(client, [[1]])
    assert_gone(pids_of(client), timeout_s=0.0)


async def _busy(harness: Harness, **faults: object) -> tuple[EngineClient, list[OutputStream]]:
    """A client with two requests that have begun."""
    client = await harness.start(faults={"step_ms": 5, **faults})
    streams = submit(client, [[1, 2], [3]], max_tokens=400)
    for stream in streams:
        await anext(stream)
    return client, list(streams)


async def test_a_killed_worker(harness: Harness) -> None:
    client, streams = await _busy(harness)
    worker = pids_of(client)[1]
    os.kill(worker, signal.SIGKILL)
    await _fails_within(client, streams, rf"worker 0 \(pid {worker}\)", "SIGKILL", "step")


async def test_a_killed_engine(harness: Harness) -> None:
    client, streams = await _busy(harness)
    engine = pids_of(client)[0]
    os.kill(engine, signal.SIGKILL)
    await _fails_within(client, streams, rf"engine \(pid {engine}\)", "SIGKILL")


async def test_a_worker_that_crashes(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    client, streams = await _busy(harness, crash_step=30)
    await _fails_within(client, streams, "worker 0", "exited with status 1", "told to crash")
    assert "in _run" in caplog.text  # the worker's traceback is in the log


@pytest.mark.slow
async def test_a_worker_that_dies_in_a_step(harness: Harness) -> None:
    client, streams = await _busy(harness, kill_step=30)
    await _fails_within(client, streams, "worker 0", "SIGKILL", "step")


@pytest.mark.slow
async def test_a_worker_that_hangs(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    client = await harness.start(faults={"hang_step": 3}, step_timeout_s=0.5)
    streams = submit(client, [[1, 2]], max_tokens=400)
    reason = r"step 3 is not finished after \d\.\d s \(limit 0\.5 s, --step-timeout-s\): worker 0 "
    reason += r"\(stage 0\) is computing at step 3, cohort 0, for \d\.\d s"
    await _fails_within(client, list(streams), reason)
    [path] = reports_of(client)
    assert str(path) in caplog.text
    report = take_report(client)
    assert re.match(reason, report)
    assert "return lane 0>0\n  source: worker 0 (stage 0) is computing at step 3" in report
    assert "in hang" in report  # stacks of the worker and of the engine are in one file
    assert "engine/process.py" in report


@pytest.mark.slow
async def test_a_stopped_worker(harness: Harness) -> None:
    client = await harness.start(faults={"step_ms": 5}, step_timeout_s=0.5)
    streams = submit(client, [[1, 2]], max_tokens=400)
    await anext(streams[0])
    os.kill(pids_of(client)[1], signal.SIGSTOP)
    await _fails_within(client, list(streams), "step", "worker 0", "the process is stopped")
    assert "none came: the process is stopped" in take_report(client)


@pytest.mark.slow
async def test_a_stopped_engine(harness: Harness) -> None:
    client = await harness.start(faults={"step_ms": 5}, options={"silence_limit_s": 1.5})
    streams = submit(client, [[1, 2]], max_tokens=400)
    await anext(streams[0])
    began = time.monotonic()
    os.kill(pids_of(client)[0], signal.SIGSTOP)
    await _fails_within(client, list(streams), "the engine process", "silent for")
    assert time.monotonic() - began < GONE_S


async def test_a_non_finite_value_fails_the_request_only(harness: Harness) -> None:
    client = await harness.start(faults={"bad_step": 2})
    [stream] = submit(client, [[1, 2]], max_tokens=10)
    _, end = await read(stream)
    assert end.finish is ERROR
    assert "layer 1" in end.error and "step 2" in end.error
    assert client.state.state == "ready"
    [later] = submit(client, [[1, 2]], max_tokens=10)
    assert len((await read(later))[0]) == 10


async def test_a_non_finite_value_stops_the_server_when_asked(harness: Harness) -> None:
    client = await harness.start(faults={"bad_step": 2}, on_nan="stop")
    [stream] = submit(client, [[1, 2]], max_tokens=10)
    await read(stream)
    state = await client.wait_ended()
    assert state.state == "failed"
    assert "non-finite value in layer 1" in state.detail


# -- during the start


@pytest.mark.slow
async def test_a_worker_that_takes_long_to_import_is_waited_for(harness: Harness) -> None:
    """Longer than an engine may be silent: it must not block on a worker that is not there yet."""
    client = await harness.start(faults={"connect_after": 2.5}, options={"silence_limit_s": 1.5})
    assert client.state.state == "ready"


@pytest.mark.slow
@pytest.mark.parametrize(
    "phase",
    ["load", *(pytest.param(name, marks=pytest.mark.slow) for name in ("init", "allocate"))],
)
async def test_a_worker_that_dies_during_the_start(harness: Harness, phase: str) -> None:
    with pytest.raises(EngineFailure, match="exited with status 9") as caught:
        await harness.start(faults={"die_in": phase})
    assert f"dying in {phase}" in caught.value.message
    [client] = harness.clients
    assert (await client.wait_ended()).state == "failed"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("CheckpointError", CheckpointError),
        pytest.param("ConfigError", ConfigError, marks=pytest.mark.slow),
        pytest.param("crash", EngineFailure, marks=pytest.mark.slow),
    ],
)
async def test_what_a_worker_refuses_keeps_its_class(
    harness: Harness, kind: str, expected: type[DraftmarkError]
) -> None:
    line = "model.safetensors: cut off at byte 17"
    with pytest.raises(DraftmarkError) as caught:
        await harness.start(faults={"refuse_in": f"load:{kind}:{line}"})
    assert type(caught.value) is expected
    assert caught.value.message.removeprefix("worker 0: ") == line
    [client] = harness.clients
    await client.wait_ended()


@pytest.mark.slow
async def test_too_little_memory_proposes_flags_that_fit(harness: Harness) -> None:
    with pytest.raises(BudgetError, match="--kv-pool-tokens") as caught:
        await harness.start(faults={"free_mib": 1}, kv_pool_tokens=4096)
    assert "\n" not in caught.value.message
    proposal = caught.value.message.rsplit("--kv-pool-tokens ", 1)[1].split(";")[0]
    client = await harness.start(faults={"free_mib": 1}, kv_pool_tokens=proposal)
    assert client.state.state == "ready"


async def test_what_is_not_built_is_refused_before_any_process(harness: Harness) -> None:
    with pytest.raises(NotBuilt, match="--tool-parser"):
        await harness.start(tool_parser="hermes")
    [client] = harness.clients
    assert (await client.wait_ended()).state == "failed"
    assert client._process is None


# -- the parent

API = """
import asyncio, os, signal, sys
sys.path.insert(0, {root!r})
from draftmark.core.resolve import load_config
from draftmark.engine.client import EngineClient
from tests.fakes import worker_process

async def main():
    client = EngineClient.launch(
        load_config({{"model": {model!r}}}),
        worker=worker_process.command(**{faults!r}),
        progress=lambda phase: print(phase, flush=True),
    )
    await client.wait_ready()
    print("ready", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def _api(
    model_dir: Path, phase: str, **faults: object
) -> tuple[subprocess.Popen[bytes], list[int]]:
    """An API process that has come as far as `phase`, and the pids of its descendants."""
    script = API.format(root=str(ROOT), model=str(model_dir), faults=faults)
    api = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert api.stdout is not None
    for line in api.stdout:
        if line.decode().startswith(phase):
            break
    return api, [child.pid for child in psutil.Process(api.pid).children(recursive=True)]


@pytest.mark.slow
@pytest.mark.parametrize("stopped", ["worker", pytest.param("engine", marks=pytest.mark.slow), ""])
def test_a_killed_api_process_takes_everything_along(
    model_dir: Path, socket_root: Path, stopped: str
) -> None:
    api, pids = _api(model_dir, "ready")
    with api:
        assert len(pids) == 2
        if stopped:
            _stop(pids[0 if stopped == "engine" else 1])
        api.kill()
    assert_gone(pids)


def _stop(pid: int) -> None:
    """Until all its threads have stopped: the kernel wakes orphans that are stopped, not those that
    are about to be."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 10
    while any(_state(task) != "T" for task in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < deadline, f"process {pid} does not stop"
        time.sleep(0.001)


def _state(task: Path) -> str:
    """One letter, after the name in parentheses."""
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


def test_a_killed_api_process_during_the_start(model_dir: Path, socket_root: Path) -> None:
    api, pids = _api(model_dir, "loading", hang_in="load")
    with api:
        assert len(pids) == 2
        assert list(socket_root.iterdir()) != []
        api.kill()
    assert_gone(pids)


@pytest.mark.slow
def test_an_interrupted_api_process_ends_in_order(model_dir: Path, socket_root: Path) -> None:
    api, pids = _api(model_dir, "ready")
    with api:
        api.send_signal(signal.SIGINT)
    assert_gone(pids)
