"""Several workers asked together: who is named when one is dead, silent, different or late."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest
import zmq

from draftmark.core.errors import ConfigError, EngineFailure
from draftmark.core.start import Join, Joined, WorkerFailed, WorkerHello, WorkerInit
from draftmark.core.topology import Topology
from draftmark.core.trace import Operation
from draftmark.engine import workers as module
from draftmark.engine.launch import Addresses
from draftmark.engine.startup import check_same
from draftmark.engine.workers import Workers
from tests.cpu.engine.conftest import Harness, pids_of, read, submit
from tests.fakes import worker_process

PP2 = Topology(stages=(1, 1), cohorts=2, lanes="gloo")
PP3 = Topology(stages=(1, 1, 1), cohorts=3, lanes="gloo")
CRASH = WorkerFailed(kind="crash", message="IndexError: 7", traceback="in rank.py")
BROKEN = WorkerFailed(kind="LaneBroken", message="forward lane 0>1 broke at step 7")
GLOO = WorkerFailed(
    kind="crash", message="RuntimeError: Connection closed by peer", traceback="in gloo"
)

Start = Callable[..., Workers]


def nothing() -> None:
    pass


@pytest.fixture
def start() -> Iterator[Start]:
    """Makes workers that have said hello."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    addresses = Addresses.create()
    made: list[Workers] = []

    def make(count: int, *, limit_s: float = 60.0, **faults: object) -> Workers:
        command = worker_process.command(**faults)
        workers = Workers(
            context, count=count, arguments=command, addresses=addresses, limit_s=limit_s
        )
        made.append(workers)
        inits = [WorkerInit(model_dir="", config={}, worker=number) for number in range(count)]
        workers.ask(inits, WorkerHello, while_waiting=nothing)
        return workers

    yield make
    for workers in made:
        workers.end()
    addresses.remove()
    context.destroy(linger=0)


def join(topology: Topology) -> Join:
    return Join(topology=topology, store_host="", store_port=0, timeout_s=1.0)


def test_answers_come_in_the_order_of_the_workers(start: Start) -> None:
    workers = start(3)
    joined = workers.ask(join(PP3), Joined, while_waiting=nothing)
    assert [answer.communicators for answer in joined] == [
        ["forward lane 0>1", "return lane 2>0"],
        ["forward lane 0>1", "forward lane 1>2"],
        ["forward lane 1>2", "return lane 2>0"],
    ]
    [second] = workers.ask(join(PP3), Joined, while_waiting=nothing, only=[1])
    assert second == joined[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "killed", "expected"),
    [
        # Who died without a word is the cause, whatever the others say and in whatever order.
        ({0: BROKEN, 1: BROKEN}, 2, r"worker 2 \(pid \d+\) was killed by signal 9 \(SIGKILL\)"),
        ({1: CRASH}, 0, r"worker 0 .*SIGKILL\)"),
        # Then who failed by itself, heard of later than its neighbours or not.
        ({0: BROKEN, 1: CRASH, 2: GLOO}, None, "worker 1 crashed: IndexError: 7"),
        ({0: GLOO, 2: CRASH}, None, "worker 2 crashed: IndexError: 7"),
        # Lost connections alone have no culprit: the first to say so is named.
        ({1: BROKEN, 2: BROKEN}, None, "worker 1: forward lane 0>1 broke at step 7"),
    ],
)
def test_the_cause_is_named_and_not_its_neighbours(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    said: dict[int, WorkerFailed],
    killed: int | None,
    expected: str,
) -> None:
    workers = start(3)
    workers.place(PP3)
    for worker in workers.all:
        worker.trace.write(0, step=7, cohort=1, operation=Operation.COMPUTE)
        words = [said[worker.number]] if worker.number in said else []
        monkeypatch.setattr(
            worker.channel, "receive", lambda words=words: words.pop() if words else None
        )
    if killed is not None:
        os.kill(workers.all[killed].child.pid, signal.SIGKILL)
        expected += r" while it was needed: worker \d \(stage \d\) is computing at step 7"
    with pytest.raises(EngineFailure, match=expected):
        workers.receive_result()


@pytest.mark.slow
def test_last_words_that_come_after_the_death_are_heard(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were sent before it, and are on their way when the life line is at its end."""
    monkeypatch.setattr(module, "_LISTEN_S", 0.0)
    workers = start(2)
    workers.place(PP2)
    worker = workers.all[1]
    words = [None, CRASH]
    monkeypatch.setattr(worker.channel, "receive", lambda: words.pop(0) if words else None)
    os.kill(worker.child.pid, signal.SIGKILL)
    worker.child.wait(10)
    with pytest.raises(EngineFailure, match="worker 1 crashed: IndexError: 7"):
        workers.report_death("in step 7")


@pytest.mark.slow
def test_a_worker_that_is_silent_ends_the_start(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit tells where each of them is (I01)."""
    monkeypatch.setattr(module, "_FIRST_WORD_S", 0.5)
    workers = start(3, limit_s=0.5, hang_in="join", only=1)
    began = time.monotonic()
    with pytest.raises(EngineFailure) as caught:
        workers.ask(join(PP3), Joined, while_waiting=nothing)
    assert time.monotonic() - began < 4
    assert caught.value.message == (
        "the start hangs: worker 1 has said nothing for 1 s; worker 0 is as far as it was asked to "
        "be; worker 1 has not answered 'join' and is sleeping; worker 2 is as far as it was asked "
        "to be"
    )


@pytest.mark.slow
def test_a_stopped_worker_ends_the_start(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_WORD_S", 0.5)
    workers = start(2, limit_s=0.5)
    os.kill(workers.all[0].child.pid, signal.SIGSTOP)
    with pytest.raises(EngineFailure, match="worker 0 has not answered 'join' and is stopped"):
        workers.ask(join(PP2), Joined, while_waiting=nothing)


async def test_several_workers_serve_as_one_does(harness: Harness) -> None:
    """pp=2 and tp=2 over fake workers: who tells results, busy shares of stages, the record."""
    client = await harness.start(pp=2, tp=2, stages="1,1")
    assert len(pids_of(client)) == 5
    topology = msgspec.convert(client.ready["topology"], Topology)
    assert (topology.stages, topology.tp, topology.cohorts) == ((1, 1), 2, 2)
    alone = await harness.start()
    prompts = [[1, 2, 3], [4], [5, 6] * 20]
    tokens = [
        [(await read(stream))[0] for stream in submit(engine, prompts, max_tokens=30)]
        for engine in (client, alone)
    ]
    assert tokens[0] == tokens[1]
    assert len(client.stats.stage_busy_us) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "error", "words"),
    [
        (
            {"version": "0.9", "only": 2},
            ConfigError,
            "worker 2 has draftmark 0.9, worker 0 has 1: every machine needs the same draftmark",
        ),
        ({"reorder": 1}, EngineFailure, "worker 1 made communicators"),
        ({"die_in": "load", "only": 3}, EngineFailure, "worker 3 .*exited with status 9"),
        (
            {"refuse_in": "load:ConfigError:--tp 3 does not divide 4 heads"},
            ConfigError,
            "^--tp 3 does not divide 4 heads$",
        ),
    ],
)
async def test_a_start_is_refused_by_name(
    harness: Harness, faults: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        await harness.start(faults=faults, pp=2, tp=2, stages="1,1")
    [client] = harness.clients
    assert (await client.wait_ended()).state == "failed"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"pp": 3}, "--pp 3: the model has 2 layers"),
        ({"pp": 2, "stages": "1,2"}, "--stages 1,2 adds up to 3, the model has 2 layers"),
        ({"pp": 2, "stages": "2"}, "--stages names 1 stages, --pp is 2"),
        ({"pp": 2, "stages_per_worker": 3}, "--stages-per-worker 3 does not divide --pp 2"),
        ({"pp": 2, "lanes": "nccl"}, "--lanes nccl is for cuda, the device is cpu"),
    ],
)
async def test_stages_that_cannot_be_are_one_line(
    harness: Harness, flags: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        await harness.start(**flags)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("num_layers", 3, "num_layers 3, worker 0 has 2"),
        ("checkpoint_bytes", 1, "checkpoint_bytes 1, worker 0 has"),
    ],
)
def test_another_model_is_named(start: Start, field: str, value: int, what: str) -> None:
    [hello] = start(1).ask(WorkerInit(model_dir="", config={}), WorkerHello, while_waiting=nothing)
    other = msgspec.structs.replace(
        hello, model=msgspec.structs.replace(hello.model, **{field: value})
    )
    check_same([hello, hello])
    with pytest.raises(ConfigError, match=f"worker 1 has {what}"):
        check_same([hello, other])
