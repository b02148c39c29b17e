"""The engine over a fake worker, seen from the API process: every request gets exactly one end."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time

import pytest

from draftmark.core.declared import resolved_from_record
from draftmark.core.errors import EngineFailure, Overloaded, Unavailable
from draftmark.core.request import SamplingParams
from draftmark.engine.requests import ModelLimits, RequestMaker
from draftmark.engine.stream import OutputStream
from tests.cpu.engine.conftest import (
    ABORT,
    ERROR,
    LENGTH,
    STOP,
    Harness,
    pids_of,
    read,
    submit,
    take_report,
    until,
)
from tests.fakes.worker import expected
from tests.fakes.worker_process import VOCAB_SIZE


async def test_a_start_tells_its_phases_and_ends_with_a_record(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    phases: list[str] = []
    with caplog.at_level("INFO", logger="draftmark"):
        client = await harness.start(options={"progress": phases.append}, kv_pool_tokens=1024)
    assert phases == [
        "starting the engine",
        "starting the worker",
        "loading 0.00 GB of weights",
        "preparing a KV pool of 1024 tokens",
    ]
    assert client.state.state == "ready"
    record = client.ready
    assert record["pool_tokens"] == 1024
    assert record["max_context"] == 512
    assert record["max_running"] == 8
    assert record["start_id"] == client.start_id
    assert record["model_rule"] == "a local directory"
    resolved = resolved_from_record(record["resolved"])  # type: ignore[arg-type]
    assert resolved.config.memory.kv_pool_tokens == 1024
    assert resolved.sources["memory.kv_pool_tokens"].kind == "flag"
    [line] = [r.getMessage() for r in caplog.records if r.getMessage().startswith("ready ")]
    assert json.loads(line.removeprefix("ready ")) == record


async def test_answers_do_not_depend_on_company(harness: Harness) -> None:
    client = await harness.start()
    prompts = [[1, 2, 3], [4], [5, 6] * 20, [1, 2, 3, 9]]
    together = [await read(s) for s in submit(client, prompts, max_tokens=30)]
    for prompt, (tokens, end) in zip(prompts, together, strict=True):
        assert (len(tokens), end.finish) == (30, LENGTH)
        [alone] = submit(client, [prompt], max_tokens=30)
        assert (await read(alone))[0] == tokens


async def test_an_aborted_request_ends_once_and_frees_its_slot(harness: Harness) -> None:
    client = await harness.start(faults={"step_ms": 2})
    [stream] = submit(client, [[1, 2]], max_tokens=400)
    first = await anext(stream)
    assert first.token_ids
    client.abort([stream.id])
    client.abort([stream.id])
    _, end = await read(stream)
    assert end.finish is ABORT
    client.abort([stream.id])
    await until(lambda: client.stats.aborts == 1 and client.stats.running == 0)
    await until(lambda: client.stats.slots_free == client.stats.slots_total)


async def test_a_finish_cuts_what_came_after_it(harness: Harness) -> None:
    client = await harness.start(faults={"step_ms": 2})
    [stream] = submit(client, [[1, 2]], max_tokens=400)
    tokens: list[int] = []
    while len(tokens) < 3:
        tokens += (await anext(stream)).token_ids
    client.finish(stream.id, 3, STOP)
    _, end = await read(stream)
    assert (end.finish, end.token_ids) == (STOP, [])
    await until(lambda: client.stats.overrun_tokens > 0)
    assert client.stats.output_tokens == 3


async def test_a_full_queue_refuses_at_once(harness: Harness) -> None:
    client = await harness.start(faults={"step_ms": 5}, max_running=1, max_queue=2)
    streams = submit(client, [[1], [2], [3]], max_tokens=20)
    with pytest.raises(Overloaded, match="3 requests are running or waiting, the limit is 3"):
        submit(client, [[4]], max_tokens=1)
    for stream in streams:
        assert (await read(stream))[1].finish is LENGTH
    [later] = submit(client, [[4]], max_tokens=1)
    assert (await read(later))[1].finish is LENGTH


async def test_a_request_that_never_fits_is_a_400(harness: Harness) -> None:
    client = await harness.start(kv_pool_tokens=64, max_context=64)
    [stream] = submit(client, [[1] * 10], max_tokens=54)
    assert (await read(stream))[1].finish is LENGTH


async def test_drain_lets_running_requests_end(harness: Harness) -> None:
    client = await harness.start(faults={"step_ms": 5})
    [stream] = submit(client, [[1]], max_tokens=40)
    await anext(stream)
    draining = asyncio.create_task(client.drain(10))
    await until(lambda: client.state.state == "draining")
    with pytest.raises(Unavailable, match="draining"):
        submit(client, [[2]])
    assert (await read(stream))[1].finish is LENGTH
    await draining
    assert client.state.state == "draining"


@pytest.mark.slow
async def test_a_drain_that_takes_too_long_is_cut(harness: Harness) -> None:
    client = await harness.start(faults={"step_ms": 50})
    [stream] = submit(client, [[1]], max_tokens=400)
    await anext(stream)
    await client.drain(0.1)
    _, end = await read(stream)
    assert (end.finish, end.error, end.error_status) == (ERROR, "the engine was closed", 503)


async def test_close_ends_what_runs_and_is_idempotent(harness: Harness) -> None:
    client = await harness.start(faults={"step_ms": 5})
    streams = submit(client, [[1], [2]], max_tokens=400)
    reset = asyncio.create_task(client.reset_cache())
    await asyncio.gather(client.close(), client.close())
    for stream in streams:
        _, end = await read(stream)
        assert (end.finish, end.error_status) == (ERROR, 503)
    await asyncio.gather(reset, return_exceptions=True)
    with pytest.raises(Unavailable):
        submit(client, [[1]])
    with pytest.raises(Unavailable):
        await client.reset_cache()


async def test_a_start_that_is_broken_off_leaves_nothing(harness: Harness) -> None:
    client = harness.launch(faults={"hang_in": "load"})
    await until(lambda: client.state.detail.startswith("loading 0"))
    await client.close()
    with pytest.raises(Unavailable):
        await client.wait_ready()
    await client.wait_ended()


async def test_the_cache_is_reset(harness: Harness) -> None:
    client = await harness.start()
    [stream] = submit(client, [list(range(100))], max_tokens=1)
    await read(stream)
    assert await client.reset_cache() == 6
    assert await client.reset_cache() == 0


async def test_an_idle_engine_says_so(harness: Harness) -> None:
    """A silence longer than the limit would be a failure."""
    client = await harness.start(options={"silence_limit_s": 1.5})
    before = client.stats.engine_us
    await until(lambda: client.stats.engine_us > before, timeout_s=5)
    assert client.state.state == "ready"


async def test_two_engines_at_once(harness: Harness) -> None:
    first, second = await asyncio.gather(harness.start(), harness.start())
    assert not set(pids_of(first)) & set(pids_of(second))
    for client in (first, second):
        [stream] = submit(client, [[1]], max_tokens=2)
        assert (await read(stream))[1].finish is LENGTH


@pytest.mark.slow
async def test_stacks_on_demand(harness: Harness) -> None:
    """A stopped worker makes the report wait for a second; the loop goes on meanwhile."""
    client = await harness.start(faults={"step_ms": 5}, pp=2, stages="1,1")
    _, stopped, told = pids_of(client)
    [stream] = submit(client, [[1]], max_tokens=500)
    await anext(stream)
    os.kill(stopped, signal.SIGSTOP)  # nobody needs it: there are no lanes between fake workers
    asked = asyncio.gather(client.stacks(), client.stacks())
    gaps = await _gaps(stream, until=asked)
    assert max(gaps) < 0.5 < sum(gaps), gaps
    for report in asked.result():
        assert report.startswith("asked for while running\n\nStages\nworker 0 (stage 0)")
        assert "forward lane 0>1\n  source: worker 0 (stage 0)" in report
        assert "return lane 1>0\n  source: worker 1 (stage 1) " in report
        assert f"Stacks of worker 0 (pid {stopped})\nnone came: the process is stopped" in report
        of_other = report.partition(f"Stacks of worker 1 (pid {told})")[2]
        assert "worker_process.py" in of_other
        assert "engine/process.py" in report
    os.kill(stopped, signal.SIGCONT)
    client.abort([stream.id])


async def _gaps(stream: OutputStream, *, until: asyncio.Future[list[str]]) -> list[float]:
    """Seconds between the outputs of a stream."""
    gaps, last = [], time.monotonic()
    while not until.done():
        await anext(stream)
        gaps.append(time.monotonic() - last)
        last += gaps[-1]
    return gaps


@pytest.mark.slow
async def test_stacks_of_an_engine_that_does_not_answer(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftmark.engine.client._STACKS_S", 0.3)
    client = await harness.start()
    engine = pids_of(client)[0]
    os.kill(engine, signal.SIGSTOP)
    with pytest.raises(Unavailable, match=r"did not answer within 0\.3 s"):
        await client.stacks()
    os.kill(engine, signal.SIGCONT)
    assert "Stages" in await client.stacks()  # what comes too late is nobody's
    await client.close()
    with pytest.raises(Unavailable):
        await client.stacks()


async def test_a_broken_off_wait_harms_nobody(harness: Harness) -> None:
    client = await harness.start()
    for call in (client.reset_cache(), client.stacks()):
        waiting = asyncio.create_task(call)
        await asyncio.sleep(0)  # it has asked, and no process answers within one turn of the loop
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert await client.reset_cache() == 0
    assert client.state.state == "ready"


async def test_sigusr1_gives_a_report_in_a_file(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    client = await harness.start()
    client.dump_stacks()
    await until(lambda: "and its stacks: " in caplog.text)
    assert "engine/process.py" in caplog.text  # at once, also where the loop hangs
    report = take_report(client)
    assert report.startswith("asked for by SIGUSR1\n")
    assert "worker_process.py" in report and "engine/process.py" in report
    [stream] = submit(client, [[1]], max_tokens=2)
    assert (await read(stream))[1].finish is LENGTH


async def test_an_engine_that_cannot_be_started_says_why(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr("draftmark.engine.supervisor.start_child", refuse)
    with pytest.raises(EngineFailure, match="cannot start the engine: no more processes"):
        await harness.start()


async def test_a_crowd_loses_nothing(harness: Harness) -> None:
    """Aborts and ends by the host at random, in a pool so small that sequences are preempted."""
    client = await harness.start(kv_pool_tokens=384, max_context=256)
    maker = RequestMaker(ModelLimits.from_ready(client.ready), seed=1)
    rng = random.Random(2)

    async def one(gate: asyncio.Semaphore) -> str:
        sampling = SamplingParams(max_tokens=rng.randrange(1, 120))
        [request_id] = client.new_ids(1)
        request = maker.make(request_id, [rng.randrange(9)] * rng.randrange(1, 40), sampling)
        leave_after = rng.choice((None, None, 0, rng.randrange(1, 60)))
        async with gate:
            [stream] = client.submit([request])
            tokens: list[int] = []
            ends: list[str] = []
            async for output in stream:
                tokens += output.token_ids
                ends += [output.finish.value] if output.finish is not None else []
                if leave_after is not None and len(tokens) >= leave_after:
                    client.abort([request_id])
        truth = expected(request, max_context=256, vocab_size=VOCAB_SIZE)
        assert tokens == truth.tokens[: len(tokens)]
        assert len(ends) == 1
        assert ends == ["abort"] or tokens == truth.tokens
        return ends[0]

    gate = asyncio.Semaphore(24)
    ends = await asyncio.gather(*(one(gate) for _ in range(120)))
    assert set(ends) == {"abort", "length"}
    await until(lambda: client.stats.slots_free == client.stats.slots_total)
    assert client.stats.preemptions > 0
    await client.reset_cache()
    await until(lambda: client.stats.pages_free == client.stats.pages_total)
