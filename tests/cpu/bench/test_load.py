"""Runs through shard processes against the truth server: what the client says is what the server
did, and a run that breaks ends in order and says why."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from draftmark.bench.client import crew as crew_module
from draftmark.bench.client.crew import lag_p99_ms
from draftmark.bench.client.load import LoadProgress, LoadResult, run_load
from draftmark.bench.client.messages import Ended, Setup
from draftmark.bench.client.process import ShardProcess
from draftmark.bench.client.shard import Shard
from draftmark.bench.client.shares import Share, shares
from draftmark.bench.profile import Mode
from draftmark.bench.request import Failure, PlannedRequest, RequestRecord
from draftmark.bench.truth.process import TruthProcess, truth_process
from draftmark.bench.truth.script import Exchange, Kind, Reply, Script, Step
from draftmark.core.errors import ConfigError, Unavailable

MS = 1_000_000
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def truth() -> Iterator[TruthProcess]:
    with truth_process() as process:
        yield process


def plan(
    i: int,
    *,
    at_s: float | None = None,
    tokens: int = 8,
    chat: bool = False,
    reply: Reply | None = None,
    **fields: Any,
) -> PlannedRequest:
    """A request of three prompt tokens; `reply` is what the server is to answer to this one."""
    prompt = {"messages": [{"role": "user", "content": "a b c"}]} if chat else {"prompt": [1, 2, 3]}
    body: dict[str, Any] = {
        "model": "truth",
        **prompt,
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "number": i,
        **fields,
    }
    if reply is not None:
        body["truth"] = msgspec.to_builtins(reply)
    return PlannedRequest(
        index=i,
        at_s=at_s,
        path="/v1/chat/completions" if chat else "/v1/completions",
        body=json.dumps(body).encode(),
        max_tokens=tokens,
        ignore_eos=True,
        num_prompt_tokens=3,
        prompt_sha=f"sha{i}",
        window=(i, i + 3),
    )


def load(truth: TruthProcess, plans: list[PlannedRequest], **options: Any) -> LoadResult:
    settings: dict[str, Any] = {"mode": Mode.CLOSED, "concurrency": 4, "timeout_s": 20.0}
    return run_load(plans, url=truth.url, **(settings | options))


def pairs(truth: TruthProcess, result: LoadResult) -> list[tuple[RequestRecord, Exchange]]:
    """Each record with what the server noted of the same request."""
    by_number = {exchange.fields["number"]: exchange for exchange in truth.log()}
    return [(record, by_number[record.i]) for record in result.records]


def is_close(times: list[tuple[int | None, int]], *, of_ms: float, lag_ms: float) -> bool:
    """Times seen and true, within 1 ms or 1 %: the best of them, and the middle one but for what
    the client says of its own lag, for the machine may be busy with other tests."""
    far = sorted(abs(seen - true) / MS for seen, true in times if seen is not None)
    limit = max(1.0, 0.01 * of_ms)
    return far[0] < limit and far[len(far) // 2] < limit + lag_ms


@pytest.mark.parametrize("num_shards", [1, 2])
@pytest.mark.parametrize("chat", [False, True])
def test_latencies_are_those_that_the_server_made(
    truth: TruthProcess, num_shards: int, chat: bool
) -> None:
    truth.play(Script(replies=[Reply(ttft_ms=40, gap_ms=12, comments=True)]))
    plans = [plan(i, chat=chat) for i in range(24)]
    result = load(truth, plans, num_shards=num_shards, concurrency=6)
    assert result.why_partial is None and not result.server_died
    assert [record.i for record in result.records] == list(range(24))
    both = pairs(truth, result)
    for record, exchange in both:
        assert record.ok, record.error
        assert record.t_send is not None and record.t_first is not None
        # On one clock: nothing is seen before it was done.
        assert record.t_send + result.started_ns <= exchange.t_first_byte
        assert record.t_first + result.started_ns >= exchange.token_times[0]
        assert record.events == len(exchange.token_times) == 8
        assert record.n_out == 8 and record.n_in_usage == 3
    start, lag = result.started_ns, result.client.lag_p99_ms
    assert lag is not None
    # Against the time of the write, on one clock, as a share of what it is part of.
    seen = [(r.t_first, e.token_times[0] - start) for r, e in both]
    assert is_close(seen, of_ms=40, lag_ms=lag)
    seen = [(r.t_last, e.token_times[-1] - start) for r, e in both]
    assert is_close(seen, of_ms=124, lag_ms=lag)
    seen = [(r.t_last - r.t_first, e.token_times[-1] - e.token_times[0]) for r, e in both]  # type: ignore[operator]
    assert is_close(seen, of_ms=84, lag_ms=lag)
    assert result.client.shards == num_shards
    assert result.client.cpu_share is not None and 0 < result.client.cpu_share < 1


def test_a_closed_loop_keeps_its_number_in_flight(truth: TruthProcess) -> None:
    truth.play(Script(replies=[Reply(ttft_ms=20, gap_ms=5, tokens=4)]))
    result = load(truth, [plan(i, tokens=4) for i in range(30)], num_shards=3, concurrency=5)
    edges = [(r.t_send, 1) for r in result.records] + [(r.t_done, -1) for r in result.records]
    in_flight = peak = 0
    for _, change in sorted(edges, key=lambda edge: (edge[0] or 0, edge[1])):
        in_flight += change
        peak = max(peak, in_flight)
    assert peak == 5
    # In the order of the plan, whichever shard took them.
    order = [r.i for r in sorted(result.records, key=lambda r: r.t_send or 0)]
    assert all(abs(place - i) < 5 for place, i in enumerate(order))


@pytest.mark.parametrize("num_shards", [1, 2])
def test_an_open_loop_sends_at_its_times(truth: TruthProcess, num_shards: int) -> None:
    truth.play(Script(replies=[Reply(ttft_ms=100, gap_ms=1, tokens=2)]))
    times = [0.0, 0.0, 0.05, 0.11, 0.12, 0.3]
    plans = [plan(i, at_s=at_s, tokens=2) for i, at_s in enumerate(times)]
    result = load(truth, plans, mode=Mode.POISSON, concurrency=1, num_shards=num_shards)
    late = []
    for record, at_s in zip(result.records, times, strict=True):
        assert record.ok and record.t_sched == round(at_s * 1e9)
        assert record.t_send is not None and record.t_send >= record.t_sched
        late.append((record.t_send - record.t_sched) / MS)
    # Timers tick in milliseconds, and the machine may be busy: not all of them, though.
    assert min(late) < 5.0


BREAKS = {
    "cut": (Reply(breaks_after=3), Failure.TRUNCATED_STREAM),
    "cut_at_once": (Reply(breaks_after=0), Failure.TRUNCATED_STREAM),
    "reset": (Reply(breaks_after=3, breaks_by=Kind.RESET), Failure.TRUNCATED_STREAM),
    "error": (Reply(breaks_after=3, breaks_by=Kind.ERROR), Failure.INBAND_ERROR),
    "stall": (Reply(breaks_after=3, breaks_by=Kind.STALL), Failure.READ_TIMEOUT),
    "no_done": (Reply(done=False), Failure.TRUNCATED_STREAM),
    "no_finish": (Reply(finish=None), Failure.TRUNCATED_STREAM),
    "full": (Reply(status=503), Failure.HTTP_5XX),
    "refused": (Reply(status=400), Failure.HTTP_4XX),
    "empty": (Reply(tokens=0), Failure.EMPTY_OUTPUT),
    "short": (Reply(tokens=7), Failure.SHORT_OUTPUT),
    "malformed": (
        Reply(steps=[Step(at_ms=1, kind=Kind.RAW, text="data: {\n\n")]),
        Failure.BAD_SSE,
    ),
    "no_usage": (Reply(usage="none"), None),
    "noise": (Reply(digit_noise=True), None),
    "reasoning": (Reply(reasoning_tokens=8), None),
    "held_back": (Reply(empty_events=[0, 3]), None),
    "crlf": (Reply(crlf=True, comments=True), None),
}


def test_each_failure_has_its_class_and_the_rest_go_on(truth: TruthProcess) -> None:
    truth.play(Script())
    cases = {**BREAKS, "malformed": (_ended(BREAKS["malformed"][0]), Failure.BAD_SSE)}
    plans = []
    for i, (reply, _) in enumerate(cases.values()):
        plans += [plan(2 * i, chat=True, reply=reply), plan(2 * i + 1)]
    result = load(truth, plans, concurrency=3, timeout_s=1.0)
    seen = {name: result.records[2 * i].failure for i, name in enumerate(cases)}
    assert seen == {name: failure for name, (_, failure) in cases.items()}
    assert all(record.ok for record in result.records[1::2])
    assert result.why_partial is None and not any(r.collateral for r in result.records)


def _ended(reply: Reply) -> Reply:
    assert reply.steps is not None
    return Reply(steps=[*reply.steps, Step(at_ms=1, kind=Kind.END)])


def test_what_is_sent_is_what_was_planned(truth: TruthProcess) -> None:
    truth.play(Script())
    result = load(truth, [plan(0, temperature=0.0)], api_key="secret", keep_text=True)
    [(record, exchange)] = pairs(truth, result)
    assert exchange.authorization == "Bearer secret"
    assert exchange.fields["temperature"] == 0.0 and exchange.prompt_tokens == 3
    assert record.text == " w0 w1 w2 w3 w4 w5 w6 w7"
    assert record.text_sha and (record.window, record.prompt_sha) == ((0, 3), "sha0")
    assert load(truth, [plan(0)]).records[0].text is None


def test_counts_by_event(truth: TruthProcess) -> None:
    reply = Reply(tokens_per_event=3, first_tokens=2, token_ids=True, cached_tokens=1)
    truth.play(Script(replies=[reply]))
    [record] = load(truth, [plan(0)]).records
    assert record.ok, record.error
    assert record.event_tokens == [2, 3, 3] and record.n_first == 2
    assert (record.n_out, record.n_cached) == (8, 1)


def test_an_answer_in_one_piece(truth: TruthProcess) -> None:
    truth.play(Script(replies=[Reply(ttft_ms=20, gap_ms=1)]))
    [record] = load(truth, [plan(0, chat=True, stream=False)]).records
    assert record.ok, record.error
    assert record.t_first is None and record.t_last == record.t_done
    assert (record.n_out, record.events) == (8, 0)


def test_progress_adds_up(truth: TruthProcess) -> None:
    truth.play(Script(replies=[Reply(ttft_ms=100, gap_ms=30)]))
    looks: list[LoadProgress] = []
    starts: list[int] = []
    result = load(
        truth,
        [plan(i) for i in range(8)],
        on_progress=looks.append,
        on_start=starts.append,
    )
    assert starts == [result.started_ns]
    assert len(looks) > 2 and looks[-1].ok == 8 and looks[-1].in_flight == 0
    assert sorted(r.i for look in looks for r in look.new) == list(range(8))
    assert any(0 < look.tokens < 64 for look in looks), "tokens of answers under way count"


def test_one_broken_connection_is_no_death(truth: TruthProcess) -> None:
    truth.play(Script())
    plans = [plan(i, reply=Reply(breaks_after=2) if i % 5 == 0 else None) for i in range(20)]
    result = load(truth, plans)
    assert not result.server_died and result.why_partial is None
    assert Counter(r.failure for r in result.records) == {
        Failure.TRUNCATED_STREAM: 4,
        None: 16,
    }
    assert not any(record.collateral for record in result.records)


@pytest.mark.parametrize(
    ("num_shards", "mode"), [(1, Mode.CLOSED), (2, Mode.CLOSED), (2, Mode.TRACE)]
)
def test_a_death_is_one_incident_and_the_rest_collateral(num_shards: int, mode: Mode) -> None:
    replies = [Reply(tokens=2)] * 10 + [Reply(breaks_after=2, breaks_by=Kind.DIE)]
    with truth_process(Script(replies=replies)) as mortal:
        began = time.monotonic()
        plans = [plan(i, at_s=i / 200, tokens=2) for i in range(200)]
        result = load(mortal, plans, num_shards=num_shards, mode=mode)
        assert time.monotonic() - began < 15, "an end early, not 200 attempts"
        log = mortal.close()
    assert result.server_died
    assert result.why_partial is not None and "the server died" in result.why_partial
    # Each has a record: what was answered, the one that met it, and all that came of it.
    assert len(result.records) == 200
    ok = sum(record.ok for record in result.records)
    assert ok == sum(step.kind is Kind.END for exchange in log for step in exchange.written)
    failed = [record for record in result.records if not record.ok]
    assert [record.collateral for record in failed].count(False) == 1
    [met] = [record for record in failed if not record.collateral]
    assert met.t_done is not None and met.failure in (Failure.TRUNCATED_STREAM, Failure.RESET)
    assert all(r.t_done is None or r.t_done >= met.t_done for r in failed)
    assert sum(record.t_send is not None for record in result.records) < 100


def test_a_killed_process_is_a_death_too() -> None:
    with truth_process(Script(replies=[Reply(ttft_ms=10, gap_ms=50)])) as mortal:
        timer = threading.Timer(0.7, mortal.kill)
        timer.start()
        result = load(mortal, [plan(i) for i in range(100)])
        timer.join()
    assert result.server_died and len(result.records) == 100
    assert sum(not r.ok and not r.collateral for r in result.records) == 1


def test_a_stop_keeps_what_there_is(truth: TruthProcess) -> None:
    truth.play(Script(replies=[Reply(ttft_ms=10, gap_ms=20)]))
    stop = threading.Event()

    def watch(look: LoadProgress) -> None:
        if look.ok >= 4:
            stop.set()

    result = load(truth, [plan(i) for i in range(400)], on_progress=watch, stop=stop)
    assert result.why_partial == "stopped" and not result.server_died
    assert 4 <= sum(record.ok for record in result.records) < 400
    broken = [record for record in result.records if not record.ok]
    assert {(r.failure, r.error) for r in broken} <= {(Failure.CLIENT_ERROR, "stopped")}
    assert len(result.records) < 400, "what was not sent has no record"


def test_ctrl_c_keeps_what_there_is(truth: TruthProcess) -> None:
    truth.play(Script(replies=[Reply(ttft_ms=10, gap_ms=20)]))

    def interrupt(look: LoadProgress) -> None:
        if look.ok >= 4 and look.in_flight:
            raise KeyboardInterrupt

    # Raised once: the end of the run calls it with nothing in flight.
    result = load(truth, [plan(i) for i in range(40)], on_progress=_once(interrupt))
    assert result.why_partial == "interrupted" and 4 <= len(result.records) < 40


def _once(call: Any) -> Any:
    """Calls until it raised."""
    raised = []

    def guarded(look: LoadProgress) -> None:
        if not raised:
            try:
                call(look)
            except KeyboardInterrupt:
                raised.append(look)
                raise

    return guarded


def test_a_lost_shard_ends_the_run(truth: TruthProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    truth.play(Script(replies=[Reply(ttft_ms=10, gap_ms=20)]))
    started: list[ShardProcess] = []

    class Kept(ShardProcess):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            started.append(self)

    monkeypatch.setattr(crew_module, "ShardProcess", Kept)

    def kill(look: LoadProgress) -> None:
        if look.ok >= 4 and started:
            started.pop()._process.kill()
            started.clear()

    result = load(truth, [plan(i) for i in range(200)], num_shards=2, on_progress=kill)
    assert result.why_partial == "a shard of the client ended by itself"
    assert 4 <= sum(record.ok for record in result.records) < 200


async def test_a_record_that_cannot_be_told_ends_its_shard(truth: TruthProcess) -> None:
    """The run would else come to its end without it."""
    truth.play(Script())

    def send(message: object) -> None:
        if isinstance(message, Ended):
            raise RuntimeError("a fault of the client")

    share = Share(plans=[plan(0, at_s=0.0)], lanes=0, queue_fd=None, connections=1)
    setup = Setup(url=truth.url, api_key=None, timeout_s=20.0, keep_text=False, share=share)
    shard = Shard(setup, send)
    await shard.open()
    with pytest.raises(RuntimeError, match="a fault of the client"):
        await shard.run(time.perf_counter_ns())


def test_shards_end_with_their_parent(truth: TruthProcess) -> None:
    truth.play(Script(replies=[Reply(breaks_after=1, breaks_by=Kind.STALL)]))
    code = (
        "import sys; from draftmark.bench.client.load import run_load\n"
        "from draftmark.bench.profile import Mode\n"
        "from tests.cpu.bench.test_load import plan\n"
        "run_load([plan(i) for i in range(4)], url=sys.argv[1], mode=Mode.CLOSED, concurrency=4,"
        " timeout_s=100, num_shards=2)"
    )
    with subprocess.Popen([sys.executable, "-c", code, truth.url], cwd=ROOT) as parent:
        deadline = time.monotonic() + 30
        while len(truth.log()) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        shards = psutil.Process(parent.pid).children()
        parent.kill()
    assert len(shards) == 2
    _, alive = psutil.wait_procs(shards, timeout=10)
    assert not alive


def test_an_unreachable_server_is_a_clear_end() -> None:
    with truth_process() as gone:
        gone.kill()
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1.*connection refused"):
            load(gone, [plan(0)])


@pytest.mark.parametrize(
    ("plans", "options", "words"),
    [
        ([], {}, "without requests"),
        ([plan(0)], {"mode": Mode.POISSON}, "needs a time"),
        ([plan(0), plan(0)], {}, "one index"),
        ([plan(0)], {"num_shards": 0}, "at least one shard"),
    ],
)
def test_plans_that_cannot_be(
    truth: TruthProcess, plans: list[PlannedRequest], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        load(truth, plans, **options)


def test_shares_of_a_closed_loop_add_up() -> None:
    parts = shares([plan(i) for i in range(40)], queue_fd=3, concurrency=16, num_shards=3)
    assert [part.lanes for part in parts] == [6, 5, 5]
    assert len(shares([plan(0), plan(1)], queue_fd=3, concurrency=16, num_shards=8)) == 2


def test_shares_of_an_open_loop_open_what_a_second_needs() -> None:
    plans = [plan(i, at_s=i / 4) for i in range(40)]
    [one] = shares(plans, queue_fd=None, concurrency=1, num_shards=1)
    assert one.connections == 4
    parts = shares(plans, queue_fd=None, concurrency=1, num_shards=2)
    assert [part.connections for part in parts] == [2, 2]
    assert sorted(p.index for part in parts for p in part.plans) == list(range(40))


def test_the_lag_of_few_ticks_is_that_of_the_largest() -> None:
    assert lag_p99_ms([]) is None
    assert lag_p99_ms([1000, 3000, 2000]) == 3.0
    assert lag_p99_ms([*range(10_000)]) == 9.9
