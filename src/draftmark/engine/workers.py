"""All workers of an engine: asked together, told plans with the same bytes, watched as one.

A worker that dies breaks the lanes of its neighbours, so that the first to complain is seldom the
one at fault: `Workers.report_death` listens to all before it names one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

import zmq

from draftmark.core.errors import DraftmarkError, EngineFailure
from draftmark.core.start import BusyReport, ReportBusy, ToWorkerStart, WorkerFailed
from draftmark.core.step import StepPlan, StepResult
from draftmark.core.topology import Topology
from draftmark.core.torchrun import Place
from draftmark.engine.channel import PeerGone, encode
from draftmark.engine.launch import Addresses
from draftmark.engine.remote import RemoteWorker
from draftmark.engine.whereabouts import Whereabouts
from draftmark.engine.worker import Answer, Worker

_BEAT_MS = 1000
_LISTEN_S = 0.5
_LISTEN_MS = 20
_LATE_WORDS_MS = 200
_STOP_GRACE_S = 5.0
# Until a worker that was started says its first word: importing torch from a slow disk.
_FIRST_WORD_S = 60.0
# What torch's process groups say of a peer that is gone or did not come.
_OF_PEERS = ("by peer", "timed out", "timeout")


class Workers:
    """In the order of their numbers. Results come from the last stage's first tensor rank.

    During the start a worker that neither answers nor writes a line for `limit_s`, and what an
    import takes, is a hang; a step of the warm-up is one after `limit_s`.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        *,
        count: int,
        arguments: Sequence[str],
        addresses: Addresses,
        limit_s: float = 60.0,
        place: Place | None = None,
    ) -> None:
        """With a `place` only the first is started here."""
        self.all: list[Worker] = []
        self._limit_s = limit_s
        try:
            for number in range(count):
                if place is None or number == 0:
                    worker = Worker(
                        context, number=number, arguments=arguments, addresses=addresses
                    )
                else:
                    worker = RemoteWorker(context, number=number, place=place)
                self.all.append(worker)
        except BaseException:  # interrupts too: leave no process
            self.end()
            raise
        self.topology = Topology()
        self.busy_us: list[int] = []
        self.busy_share: list[float] = []
        self._busy_at: list[float] = []
        self._unanswered: dict[int, str] = {}

    @property
    def pids(self) -> list[int]:
        """Of those that are children of this process."""
        return [worker.child.pid for worker in self.all if not isinstance(worker, RemoteWorker)]

    def published(self, place: Place) -> dict[str, str]:
        """What those that join need to find."""
        return {
            place.key(f"worker {worker.number}"): worker.published
            for worker in self.all
            if isinstance(worker, RemoteWorker)
        }

    @property
    def result_worker(self) -> Worker:
        return self.all[self.topology.result_worker]

    def place(self, topology: Topology) -> None:
        """From now on results are those of this topology."""
        assert topology.num_workers == len(self.all)
        self.topology = topology
        self.busy_us = [0] * topology.num_stages
        self.busy_share = [0.0] * topology.num_stages
        self._busy_at = [time.monotonic()] * topology.num_stages

    # -- the start

    def ask(
        self,
        question: ToWorkerStart | Sequence[ToWorkerStart],
        expect: type[Answer],
        *,
        while_waiting: Callable[[], None],
        only: Sequence[int] | None = None,
    ) -> list[Answer]:
        """Ask all workers (or `only` some) one question, or each its own, and wait for all answers.
        They work at it at the same time. Raises what one of them says is wrong, or `EngineFailure`
        for one that died or hangs. `while_waiting` is called about once a second.
        """
        numbers = list(only or range(len(self.all)))
        questions = question if isinstance(question, Sequence) else [question] * len(numbers)
        unsent = dict(zip(numbers, questions, strict=True))
        self._unanswered = {number: _name(each) for number, each in unsent.items()}
        answers: dict[int, Answer] = {}
        began = time.monotonic()
        while len(answers) < len(numbers):
            self._send_connected(unsent)
            self._await(writable=unsent, readable=set(self._unanswered) - set(unsent))
            while_waiting()
            for number in set(self._unanswered) - set(unsent):
                answer = self._answer_of(self.all[number], expect)
                if answer is not None:
                    answers[number] = answer
                    del self._unanswered[number]
            self.check_alive("while the engine started")
            self._check_silence(began)
        return [answers[number] for number in numbers]

    def _send_connected(self, unsent: dict[int, ToWorkerStart]) -> None:
        """There is nobody to send to until the other side is there."""
        for number in list(unsent):
            channel = self.all[number].channel
            if channel.can_send:
                try:
                    channel.send(unsent.pop(number))
                except PeerGone:
                    self.report_death("before it was asked anything")

    def _answer_of(self, worker: Worker, expect: type[Answer]) -> Answer | None:
        message = worker.channel.receive()
        if isinstance(message, WorkerFailed):
            self._raise_failure(worker, message)
        return None if message is None else worker.checked(message, expect)

    def _await(self, *, readable: Iterable[int], writable: Iterable[int] = ()) -> None:
        """Until one of these channels can be used, somebody dies, or a second has passed."""
        poller = zmq.Poller()
        for number in readable:
            poller.register(self.all[number].channel.socket, zmq.POLLIN)
        for number in writable:
            poller.register(self.all[number].channel.socket, zmq.POLLOUT)
        for worker in self.all:
            poller.register(worker.child.life, zmq.POLLIN)
        poller.poll(_BEAT_MS)

    def _check_silence(self, began: float) -> None:
        limit_s = self._limit_s + _FIRST_WORD_S
        now = time.monotonic()
        for number in self._unanswered:
            if now - max(began, self.all[number].child.wrote_at) > limit_s:
                raise EngineFailure(
                    f"the start hangs: worker {number} has said nothing for {limit_s:g} s; "
                    + self._describe_start()
                )

    def _describe_start(self) -> str:
        """Where each worker is in the start."""
        return "; ".join(
            f"worker {worker.number} has not answered {self._unanswered[worker.number]!r} and is "
            f"{worker.state}{worker.last_line}"
            if worker.number in self._unanswered
            else f"worker {worker.number} is as far as it was asked to be"
            for worker in self.all
        )

    def run(self, plan: StepPlan, *, while_waiting: Callable[[], None]) -> float:
        """Run one step alone, before serving; the milliseconds that its slowest stage computed."""
        before = self._ask_busy_and_wait(while_waiting)
        self.send_plan(plan)
        began = time.monotonic()
        while self.receive_result() is None:
            self._await(readable=range(len(self.all)))
            while_waiting()
            self.check_alive("in a step of the warm-up")
            if time.monotonic() - began > self._limit_s:
                raise EngineFailure(
                    f"a step of the warm-up is not finished after {self._limit_s:g} s "
                    f"(--step-timeout-s): {self._describe(self.whereabouts())}"
                )
        after = self._ask_busy_and_wait(while_waiting)
        return max(b - a for a, b in zip(before, after, strict=True)) / 1e3

    def _ask_busy_and_wait(self, while_waiting: Callable[[], None]) -> list[int]:
        reports = self.ask(ReportBusy(), BusyReport, while_waiting=while_waiting)
        for worker, report in zip(self.all, reports, strict=True):
            self._note_busy(worker, report)
        return list(self.busy_us)

    # -- steps

    def send_plan(self, plan: StepPlan) -> None:
        """Encoded once. Raises `PeerGone` when a worker is gone."""
        data = encode(plan)
        for worker in self.all:
            worker.channel.send_bytes(data)

    def receive_result(self) -> StepResult | None:
        """The next step's result, or None at once. Raises what a worker says it died of."""
        result = None
        for worker in self.all:
            while result is None or worker is not self.result_worker:
                message = worker.channel.receive()
                if message is None:
                    break
                if isinstance(message, WorkerFailed):
                    self._raise_failure(worker, message)
                elif isinstance(message, BusyReport):
                    self._note_busy(worker, message)
                else:
                    result = worker.checked(message, StepResult)
        return result

    def ask_busy(self) -> None:
        """Have every worker say how long its stages computed; `busy_us` is then up to date soon."""
        with contextlib.suppress(PeerGone):  # its death is seen elsewhere
            data = encode(ReportBusy())
            for worker in self.all:
                worker.channel.send_bytes(data)

    def _note_busy(self, worker: Worker, report: BusyReport) -> None:
        if self.topology.tp_rank_of(worker.number) == 0:
            stages = self.topology.stages_of(worker.number)
            now = time.monotonic()
            for stage, busy_us in zip(stages, report.busy_us, strict=True):
                passed = max(1e-6, now - self._busy_at[stage])
                self.busy_share[stage] = (busy_us - self.busy_us[stage]) / 1e6 / passed
                self.busy_us[stage] = busy_us
                self._busy_at[stage] = now

    @property
    def has_input(self) -> bool:
        return any(worker.channel.has_input for worker in self.all)

    # -- what they are at, and their death

    def whereabouts(self) -> list[Whereabouts]:
        """Of every stage, in the order of workers."""
        return [place for worker in self.all for place in self._places_of(worker)]

    def _places_of(self, worker: Worker) -> list[Whereabouts]:
        return [
            Whereabouts(
                worker=worker.number,
                stage=stage,
                tp_rank=self.topology.tp_rank_of(worker.number),
                trace=worker.trace.read(index),
                state=worker.state,
            )
            for index, stage in enumerate(self.topology.stages_of(worker.number))
        ]

    def _describe(self, places: Sequence[Whereabouts]) -> str:
        now_s = time.monotonic()
        return "; ".join(place.describe(self.topology, now_s=now_s) for place in places)

    def check_alive(self, where: str) -> None:
        """Raise for the worker that is to blame, if any has died."""
        if any(worker.is_gone for worker in self.all):
            self.report_death(where)

    def report_death(self, where: str) -> NoReturn:
        """Raise for the worker that is to blame; one of them is gone."""
        raise self._find_cause({}, where=where)

    def _raise_failure(self, worker: Worker, failure: WorkerFailed) -> NoReturn:
        where = "while the engine started" if self._unanswered else "while it was needed"
        raise self._find_cause({worker.number: failure}, where=where)

    def _find_cause(self, said: dict[int, WorkerFailed], *, where: str) -> DraftmarkError:
        """Whoever died without a word, else who failed by itself, else who lost its neighbours."""
        self._hear_all(said)
        silent = [worker for worker in self.all if self._died_silently(worker, said)]
        if silent:
            return EngineFailure(self._obituary(silent[0], where))
        if not said:
            return EngineFailure(f"a worker is gone {where}")
        number = min(said, key=lambda number: _is_hearsay(said[number]))
        error = self.all[number].error(said[number])
        if _is_hearsay(said[number]) and self._unanswered:
            return EngineFailure(f"{error.message}; {self._describe_start()}")
        return error

    def _hear_all(self, said: dict[int, WorkerFailed]) -> None:
        """Add what other workers say they died of. Waits a moment for those that still run: the
        death of one shows at once, those of its neighbours follow."""
        deadline = time.monotonic() + _LISTEN_S
        while True:
            for worker in self.all:
                words = None if worker.number in said else worker.hear_last_words()
                if words is not None:
                    said[worker.number] = words
            if len(said) == len(self.all) or time.monotonic() > deadline:
                return
            time.sleep(_LISTEN_MS / 1e3)

    def _died_silently(self, worker: Worker, said: dict[int, WorkerFailed]) -> bool:
        if worker.number in said or not worker.is_gone:
            return False
        # What it said before it died may still be on its way.
        worker.channel.socket.poll(_LATE_WORDS_MS)
        words = worker.hear_last_words()
        if words is not None:
            said[worker.number] = words
        return words is None

    def _obituary(self, worker: Worker, where: str) -> str:
        begun = [place for place in self._places_of(worker) if place.trace.step >= 0]
        at = f": {self._describe(begun)}" if begun else ""
        return f"{worker.describe_end()} {where}{at}{worker.last_line}"

    def stop(self) -> None:
        """Ask all to end, and end those that do not."""
        for worker in self.all:
            worker.ask_to_stop()
        deadline = time.monotonic() + _STOP_GRACE_S
        for worker in self.all:
            worker.await_stop(max(0.0, deadline - time.monotonic()))

    def end(self) -> None:
        """End all now, however they are."""
        for worker in self.all:
            worker.child.begin_kill()
        for worker in self.all:
            worker.end()


def _name(question: ToWorkerStart) -> str:
    return str(question.__struct_config__.tag)


def _is_hearsay(failure: WorkerFailed) -> bool:
    """Whether a worker failed because another one was gone or did not come."""
    return failure.kind in ("LaneBroken", "GroupBroken") or any(
        words in failure.message.lower() for words in _OF_PEERS
    )
