"""Pipelines in one process: every rank in threads of its own, on strict wires, with random delays.

A `Crew` stands where a `WorkerRun` stands in `Loop`: each plan goes to every rank as bytes, what
the last stage's first tensor rank says comes back. Like a worker process, a rank has a thread that
enqueues and one that reads results. Nothing waits for ever: a hang fails with the stacks of all
threads and what each stage was at.
"""

from __future__ import annotations

import faulthandler
import random
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from queue import Empty, SimpleQueue
from typing import Any
from zlib import crc32

import msgspec
import torch

from draftmark.core.request import FinishReason, Request
from draftmark.core.step import StepPlan, StepResult, TokenLogprobs
from draftmark.core.topology import LaneKind, LaneName, Topology
from draftmark.core.trace import Operation
from draftmark.kernels.backends import Backends
from draftmark.models.stage import Stage
from draftmark.parallel.collectives import Alone, TensorGroup
from draftmark.parallel.lanes import Parcel, Ticket
from draftmark.parallel.strict import StrictWire
from draftmark.runtime.drafting import Drafter, Seat
from draftmark.runtime.memory import RunLimits
from draftmark.runtime.pipeline import Placing, WorkerPending, WorkerRun, make_worker_run
from tests.cpu.runtime.harness import (
    CPU,
    MAX_CONTEXT,
    VOCAB,
    Loop,
    forward_whole,
    make_request,
    make_stages,
    no_wire,
    random_request,
)
from tests.fakes.thread_group import ThreadGroup, _Meeting

NUM_LAYERS = 4
NUM_REQUESTS = 8

# (layers of each stage, family, backends and tensor group by name) -> stages
MakeStages = Callable[..., list[Stage]]

HANG_S = 15.0
# Longer than a hang takes to be seen: the report comes first.
_PATIENCE_S = 20.0
_JOIN_S = 10.0

_encode = msgspec.msgpack.Encoder().encode
_decode_plan = msgspec.msgpack.Decoder(StepPlan).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How the model of 4 layers is cut. Lanes `threads`: each worker in threads of its own, on
    strict wires; `local` and `test`: all stages in one worker and one thread."""

    stages: tuple[int, ...] = (NUM_LAYERS,)
    tp: int = 1
    cohorts: int = 1
    lanes: str = "threads"
    stages_per_worker: int = 1

    def __str__(self) -> str:
        stages = "+".join(map(str, self.stages))
        tensor = f" tp{self.tp}" if self.tp > 1 else ""
        several = f" {self.stages_per_worker} a worker" if self.stages_per_worker > 1 else ""
        return f"{stages}{tensor} M{self.cohorts} {self.lanes}{several}"

    @property
    def topology(self) -> Topology:
        in_one = self.lanes != "threads"
        return Topology(
            stages=self.stages,
            tp=self.tp,
            cohorts=self.cohorts,
            lanes="test" if self.lanes == "threads" else self.lanes,
            stages_per_worker=len(self.stages) if in_one else self.stages_per_worker,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    num_pages: int = 65
    num_slots: int = 9
    prefill_tokens: int = 64
    num_snapshots: int | None = None
    max_drafts: int = 0

    def limits(self, cohorts: int) -> RunLimits:
        return RunLimits(
            num_pages=self.num_pages,
            num_slots=self.num_slots,
            max_context=MAX_CONTEXT,
            max_running=self.num_slots - 1,
            prefill_tokens=self.prefill_tokens,
            cohorts=cohorts,
            num_snapshots=self.num_snapshots or 0,
            max_drafts=self.max_drafts,
        )


class NotedWire(StrictWire):
    """Keeps a checksum of everything that was sent."""

    def __init__(self, kind: LaneKind, *, seed: int, max_delay_s: float) -> None:
        super().__init__(seed=seed, max_delay_s=max_delay_s, patience_s=_PATIENCE_S)
        self.kind = kind.value
        self.sent: list[int] = []

    def send(self, parcel: Parcel) -> Ticket:
        payload, header = parcel.payload.numpy(), parcel.header.nbytes
        # But for the last word of the header, the number of the lane.
        self.sent.append(crc32(payload[header:], crc32(parcel.label.numpy())))
        return super().send(parcel)


class _Rank:
    """One worker: a thread that enqueues, one that reads results."""

    def __init__(self, crew: Crew, worker: int, run: WorkerRun, *, delay_s: float) -> None:
        self.run = run
        self.inbox: SimpleQueue[bytes | None] = SimpleQueue()
        # (step, cohort, tokens, prompts, verify rows) of each forward, for each stage.
        self.forwards: list[list[tuple[int, ...]]] = [[] for _ in run.runs]
        self._crew = crew
        self._worker = worker
        self._pending: SimpleQueue[WorkerPending | None] = SimpleQueue()
        self._delay_s = self._result_delay_s = delay_s
        self._plan: StepPlan | None = None
        for index, stage_run in enumerate(run.runs):
            self._watch(stage_run._stage, self.forwards[index])
        self.threads = [
            threading.Thread(target=self._guarded, args=(call,), name=f"rank {worker} {what}")
            for call, what in ((self._serve, "main"), (self._results, "results"))
        ]
        for thread in self.threads:
            thread.daemon = True
            thread.start()

    def _watch(self, stage: Stage, forwards: list[tuple[int, ...]]) -> None:
        forward = stage.forward

        def noting(inputs: Any, batch: Any, pools: Any) -> Any:
            plan = self._plan
            assert plan is not None
            counts = (len(batch.positions), len(batch.prefill), batch.num_verify)
            forwards.append((plan.step, plan.cohort, *counts))
            return forward(inputs, batch, pools)

        stage.forward = noting  # type: ignore[method-assign]

    def _guarded(self, call: Callable[[], None]) -> None:
        torch.set_num_threads(1)
        try:
            call()
        except BaseException as error:
            self._crew.fail(self._worker, error)
            self._pending.put(None)

    def delay(self, delay_s: float) -> None:
        self._delay_s = delay_s

    def delay_results(self, delay_s: float) -> None:
        self._result_delay_s = delay_s

    def _serve(self) -> None:
        rng = random.Random(self._worker)
        while (data := self.inbox.get()) is not None:
            self._plan = _decode_plan(data)
            _sleep(rng, self._delay_s)
            self._pending.put(self.run.launch(self._plan))
        self._pending.put(None)

    def _results(self) -> None:
        rng = random.Random(-1 - self._worker)
        while (pending := self._pending.get()) is not None:
            _sleep(rng, self._result_delay_s)
            result = pending.result()
            if result is not None:
                self._crew.results.put(result)


def _sleep(rng: random.Random, delay_s: float) -> None:
    """Now and then, up to so long."""
    if rng.random() < 0.3:
        time.sleep(rng.uniform(0.0, delay_s))


class _Handle:
    """The next result of a crew."""

    def __init__(self, crew: Crew) -> None:
        self.result = crew.result


class Crew:
    """All ranks of a topology, with a result for each launched plan."""

    def __init__(
        self,
        family: str,
        *,
        cut: Cut,
        sizes: Sizes,
        delay_s: float = 0.002,
        wire_delay_s: float = 0.001,
        poison: bool = True,
        prepare: Callable[[Stage, int], None] = lambda stage, number: None,
        make: MakeStages = make_stages,
        make_drafter: Callable[[Seat], Drafter] | None = None,
    ) -> None:
        """`prepare` gets every stage with its number, before anything runs; `make` makes them."""
        topology = cut.topology
        self._make = make
        self.results: SimpleQueue[StepResult | None] = SimpleQueue()
        self.wires: dict[LaneName, NotedWire] = {}
        self._topology = topology
        self._wire_delay_s = wire_delay_s
        self._error: tuple[int, BaseException] | None = None
        self._said: dict[tuple[int, int], tuple[object, ...]] = {}
        self._meetings: list[_Meeting] = []
        stages = self._make_stages(family)
        for key, stage in stages.items():
            prepare(stage, key[0])
        runs = [
            make_worker_run(
                [stages[s, topology.tp_rank_of(worker)] for s in topology.stages_of(worker)],
                placing=Placing(
                    topology=topology,
                    worker=worker,
                    connect=self._connect,
                    note=self._noting(worker),
                    poison=poison,
                    make_drafter=make_drafter,
                ),
                limits=sizes.limits(cut.cohorts),
                kv_dtype=torch.float64,
                device=CPU,
            )
            for worker in range(topology.num_workers)
        ]
        self.ranks = [_Rank(self, w, run, delay_s=delay_s) for w, run in enumerate(runs)]

    def _make_stages(self, family: str) -> dict[tuple[int, int], Stage]:
        """By (stage, tensor rank). A tensor group a row of workers, as the topology has it."""
        topology = self._topology
        stages = {}
        for first in range(0, topology.num_workers, topology.tp):
            meeting = None
            if topology.tp > 1:
                meeting = _Meeting(topology.tp, timeout_s=_PATIENCE_S)
                self._meetings.append(meeting)
            for rank in range(topology.tp):
                group: TensorGroup = Alone() if meeting is None else ThreadGroup(meeting, rank)
                made = self._make(topology.stages, family, backends=Backends(), group=group)
                for number in topology.stages_of(first):
                    stages[number, rank] = made[number]
        return stages

    def _connect(self, name: LaneName) -> NotedWire:
        if name not in self.wires:
            seed = self._topology.lane_names().index(name)
            self.wires[name] = NotedWire(name.kind, seed=seed, max_delay_s=self._wire_delay_s)
        return self.wires[name]

    def _noting(self, worker: int) -> Callable[[int, int, int, Operation, int], None]:
        def note(index: int, step: int, cohort: int, operation: Operation, lane: int) -> None:
            self._said[worker, index] = (step, cohort, operation, lane)

        return note

    @property
    def runs(self) -> list[WorkerRun]:
        return [rank.run for rank in self.ranks]

    def launch(self, plan: StepPlan) -> _Handle:
        data = _encode(plan)
        for rank in self.ranks:
            rank.inbox.put(data)
        return _Handle(self)

    def result(self) -> StepResult:
        try:
            result = self.results.get(timeout=HANG_S)
        except Empty:
            report = self._hang()
            self._break()
            raise AssertionError(report) from None
        if result is None:
            assert self._error is not None
            worker, error = self._error
            raise AssertionError(f"rank {worker}: {type(error).__name__}: {error}") from error
        return result

    def fail(self, worker: int, error: BaseException) -> None:
        """The first failure is the reason; the others follow from it."""
        if self._error is None:
            self._error = worker, error
        self.results.put(None)
        self._break()

    def _break(self) -> None:
        for meeting in self._meetings:
            meeting.barrier.abort()
        for wire in self.wires.values():
            wire.close()

    def _hang(self) -> str:
        names = self._topology.lane_names()
        lines = [f"no result within {HANG_S:g} s; what each stage was at:"]
        for (worker, index), (step, cohort, operation, lane) in sorted(self._said.items()):
            where = f" {names[lane]}" if isinstance(lane, int) and lane >= 0 else ""
            lines.append(f"  rank {worker}.{index}: step {step}/{cohort} {operation}{where}")
        with tempfile.TemporaryFile("w+") as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            lines.append(file.read())
        return "\n".join(lines)

    def close(self) -> None:
        """Every thread ends; what was sent and never asked for is dropped."""
        for rank in self.ranks:
            rank.inbox.put(None)
        for rank in self.ranks:
            for thread in rank.threads:
                thread.join(_JOIN_S)
                assert not thread.is_alive(), f"{thread.name} does not end"
        self._break()

    def abandon(self) -> None:
        """Something failed: who waits for another is told, so that all threads end."""
        self._break()
        self.close()

    def check_ranks(self, plans: Sequence[StepPlan]) -> None:
        """I03: every rank ran every step, with the same batch; tensor ranks said the same bits."""
        want = [
            (
                plan.step,
                plan.cohort,
                plan.num_tokens,
                len(plan.prefill),
                len(plan.verify),
            )
            for plan in plans
        ]
        for number, rank in enumerate(self.ranks):
            for forwards in rank.forwards:
                assert forwards == want, f"rank {number} ran other batches"
        by_lane: dict[tuple[LaneKind, int], list[list[int]]] = defaultdict(list)
        for name, wire in self.wires.items():
            by_lane[name.kind, name.source].append(wire.sent)
        for lane, sent in by_lane.items():
            assert sent == sent[:1] * len(sent), f"tensor ranks sent other bits on {lane}"
            if lane[0] is LaneKind.FORWARD:
                assert len(sent[0]) == len(plans)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alone:
    """All stages in one worker and this thread."""

    run: WorkerRun

    def launch(self, plan: StepPlan) -> WorkerPending:
        return self.run.launch(plan)

    def close(self) -> None:
        self.run.close()

    def abandon(self) -> None:
        self.run.close()

    def check_ranks(self, plans: Sequence[StepPlan]) -> None:
        pass


@contextmanager
def running(family: str, *, cut: Cut, sizes: Sizes, **options: Any) -> Iterator[Crew | _Alone]:
    """What runs the plans: threads switch often, so that more orders are tried."""
    run: Crew | _Alone
    if cut.lanes == "threads":
        run = Crew(family, cut=cut, sizes=sizes, **options)
    else:
        assert cut.tp == 1
        stages = make_stages(cut.stages, family, backends=Backends())
        for number, stage in enumerate(stages):
            options.get("prepare", lambda stage, number: None)(stage, number)
        run = _Alone(
            run=make_worker_run(
                stages,
                placing=Placing(
                    topology=cut.topology,
                    worker=0,
                    connect=no_wire,
                    note=lambda *said: None,
                    poison=options.get("poison", True),
                ),
                limits=sizes.limits(cut.cohorts),
                kv_dtype=torch.float64,
                device=CPU,
            )
        )
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-3)
    try:
        yield run
    except BaseException:
        run.abandon()
        raise
    else:
        run.close()
    finally:
        sys.setswitchinterval(interval)


# -- histories ------------------------------------------------------------------------------------


@cache
def judge(family: str) -> Stage:
    """The whole model, with the reference kernels."""
    (stage,) = make_stages((NUM_LAYERS,), family)
    return stage


class PipelineLoop(Loop):
    """Keeps log-probabilities as well."""

    def __init__(self, run: Any, *, sizes: Sizes, depth: int, cohorts: int) -> None:
        super().__init__(
            run,
            num_pages=sizes.num_pages,
            num_slots=sizes.num_slots,
            prefill_tokens=sizes.prefill_tokens,
            depth=depth,
            cohorts=cohorts,
            num_snapshots=sizes.num_snapshots,
            max_drafts=sizes.max_drafts,
        )
        self.logprobs: dict[int, list[TokenLogprobs]] = defaultdict(list)
        self.prompt_logprobs: dict[int, list[TokenLogprobs]] = defaultdict(list)

    def _take(self, outputs: list[Any]) -> None:
        super()._take(outputs)
        for output in outputs:
            self.logprobs[output.id] += output.logprobs or []
            self.prompt_logprobs[output.id] += output.prompt_logprobs or []

    def check_logprobs(self, stage: Stage, request: Request) -> None:
        """Those of the whole model, up to rounding; and there are as many as tokens."""
        answer, sampling = self.answers[request.id], request.sampling
        own = self.logprobs[request.id]
        prompt = self.prompt_logprobs[request.id]
        assert len(own) == (0 if sampling.logprobs is None else len(answer.tokens))
        is_whole = sampling.prompt_logprobs is not None and bool(answer.tokens)
        assert not is_whole or len(prompt) == len(request.prompt_ids) - 1
        tokens = request.prompt_ids + answer.tokens
        if not (own or prompt):
            return
        want = forward_whole(stage, tokens).log_softmax(-1)
        first = len(request.prompt_ids)
        for begin, entries in ((1, prompt), (first, own)):
            for index, entry in enumerate(entries, begin):
                row = want[index - 1]
                assert entry.token == tokens[index]
                assert abs(entry.logprob - float(row[entry.token])) < 1e-9
                assert entry.rank == 1 + int((row > row[entry.token]).sum())
                ids = row.topk(len(entry.top)).indices.tolist()
                assert [token for token, _ in entry.top] == ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One history as it came out."""

    loop: PipelineLoop
    requests: list[Request]
    cut_short: int  # aborts of what had tokens and was not ended
    moves: int

    @property
    def results(self) -> list[StepResult]:
        return [msgspec.structs.replace(result, run_us=0) for result in self.loop.results]

    def events(self) -> dict[str, int]:
        """What happened, by name: a history without these would prove little."""
        stats, loop = self.loop.scheduler.stats(), self.loop
        ends = [a.end.finish for a in loop.answers.values() if a.end is not None]
        return {
            "preemptions": stats.preemptions,
            "cached tokens": stats.cached_tokens,
            "aborts under way": self.cut_short,
            "stops": ends.count(FinishReason.STOP),
            "lengths": ends.count(FinishReason.LENGTH),
            "inert rows": sum(not row.emitted for r in loop.results for row in r.rows),
            "chunks": sum(not row.is_last for plan in loop.plans for row in plan.prefill),
            "prompts of one token": sum(len(r.prompt_ids) == 1 for r in self.requests),
            "logprobs": sum(map(len, loop.logprobs.values())),
            "prompt logprobs": sum(map(len, loop.prompt_logprobs.values())),
            "penalties": sum(r.sampling.has_penalties for r in self.requests),
            "slots used again": sum(a.generation > 1 for p in loop.plans for a in p.admits),
            "moves": self.moves,
        }

    def check_alone(self, family: str) -> None:
        """Each request gave what it gives alone on the whole model."""
        self.loop.check_answers(judge(family), self.requests)
        for request in self.requests:
            self.loop.check_logprobs(judge(family), request)


class History:
    """Requests, sizes and the order of events, all drawn from a seed. Most pools are too small for
    all that runs. Nothing of it depends on how the model is cut but the number of cohorts.

    For a hybrid model what prompts share is long enough for a snapshot."""

    def __init__(
        self,
        seed: int,
        *,
        cohorts: int,
        num_requests: int = NUM_REQUESTS,
        is_hybrid: bool = False,
        max_drafts: int = 0,
    ) -> None:
        rng = random.Random(1000 * cohorts + seed)
        self.cohorts = cohorts
        self.sizes = Sizes(
            num_pages=rng.choice([16, 20, 24] if is_hybrid else [9, 10, 11, 14]),
            num_slots=rng.choice([5, 7, 9]),
            prefill_tokens=rng.choice([5, 16, 64]),
            num_snapshots=3 if is_hybrid else None,
            max_drafts=max_drafts,
        )
        self.depth = rng.choice([2, cohorts + 1, cohorts + 1])
        shared = (66, 80) if is_hybrid else (16, 33)
        prefixes = [[rng.randrange(VOCAB) for _ in range(n)] for n in shared]
        first = make_request(0, prompt=[rng.randrange(VOCAB)], max_tokens=12, logprobs=1)
        self.requests = [first]
        for i in range(1, num_requests):
            wanted = {"logprobs": 3} if i % 4 == 1 else {}
            wanted |= {"prompt_logprobs": 2} if i % 4 == 2 else {}
            is_hungry = rng.random() < 0.5
            self.requests.append(
                random_request(i, rng, prefixes=prefixes, is_hungry=is_hungry, **wanted)
            )
        self._rng = rng

    def play(self, run: Any, *, on_loop: Callable[[PipelineLoop], None] | None = None) -> Played:
        """Bursts of arrivals, steps, and now and then an abort."""
        rng, waiting, cut_short = self._rng, list(self.requests), 0
        loop = PipelineLoop(run, sizes=self.sizes, depth=self.depth, cohorts=self.cohorts)
        if on_loop is not None:
            on_loop(loop)
        moves = _count_moves(loop)
        while waiting or loop.scheduler.has_work:
            if waiting and rng.random() < 0.25:
                burst, waiting = waiting[:6], waiting[6:]
                loop.add(*burst)
            if rng.random() < 0.02:
                request_id = rng.randrange(len(self.requests))
                answer = loop.answers.get(request_id)
                cut_short += answer is not None and bool(answer.tokens) and answer.end is None
                loop.abort(request_id)
            loop.step()
        return Played(loop=loop, requests=self.requests, cut_short=cut_short, moves=len(moves))


def play(
    cut: Cut,
    *,
    family: str = "llama",
    seed: int,
    num_requests: int = NUM_REQUESTS,
    max_drafts: int = 0,
    on_loop: Callable[[PipelineLoop], None] | None = None,
    on_run: Callable[[Any], None] = lambda run: None,
    **options: Any,
) -> Played:
    """A history on the model of `family`, cut as `cut` says."""
    history = History(
        seed,
        cohorts=cut.cohorts,
        num_requests=num_requests,
        is_hybrid=family == "hybrid",
        max_drafts=max_drafts,
    )
    with running(family, cut=cut, sizes=history.sizes, **options) as run:
        on_run(run)
        played = history.play(run, on_loop=on_loop)
    run.check_ranks(played.loop.plans)
    stats = played.loop.scheduler.stats()
    assert (stats.slots_free, stats.draining) == (stats.slots_total, 0)
    assert stats.pages_free + stats.pages_cached == stats.pages_total
    return played


def _count_moves(loop: PipelineLoop) -> list[int]:
    """Grows with every row that moves to another cohort."""
    cohorts = loop.scheduler._roster.cohorts
    move, moved = cohorts._move, []

    def noting(sequence: Any, index: int, *, step: int) -> None:
        moved.append(sequence.id)
        move(sequence, index, step=step)

    cohorts._move = noting  # type: ignore[method-assign]
    return moved


@cache
def one_stage(family: str, seed: int, cohorts: int, num_requests: int = NUM_REQUESTS) -> Played:
    """The same history on one stage, in one thread."""
    cut = Cut(cohorts=cohorts, lanes="local")
    return play(cut, family=family, seed=seed, num_requests=num_requests)


def check_same(played: Played, base: Played, *, bitwise: bool) -> None:
    """The same answers from the same plans; with `bitwise`, every field of every result."""
    for request in base.requests:
        ours, theirs = (p.loop.answers[request.id] for p in (played, base))
        assert ours.tokens == theirs.tokens, f"request {request.id}: other tokens"
        assert ours.end is not None and theirs.end is not None
        assert ours.end.finish is theirs.end.finish, f"request {request.id}: other end"
    assert played.loop.plans == base.loop.plans, "other plans"
    if bitwise:
        for ours, theirs in zip(played.results, base.results, strict=True):
            assert ours == theirs, f"step {theirs.step}: other result"
