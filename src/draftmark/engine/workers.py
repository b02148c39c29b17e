"""All workers of an engine: asked together, told plans with the same bytes, watched as one.

A worker that dies breaks the lanes of its neighbours, so that the first to complain is seldom the
one at fault: whoever is dead is named first.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

import zmq

from draftmark.core.errors import EngineFailure
from draftmark.core.start import BusyReport, ReportBusy, ToWorkerStart, WorkerFailed
from draftmark.core.step import StepPlan, StepResult
from draftmark.core.topology import Topology
from draftmark.engine.channel import PeerGone, encode
from draftmark.engine.launch import Addresses
from draftmark.engine.worker import Answer, Worker

_BEAT_MS = 1000
_DEATH_SHOWS_MS = 500


class Workers:
    """In the order of their numbers. Results come from the last stage's first tensor rank."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        *,
        count: int,
        arguments: Sequence[str],
        addresses: Addresses,
    ) -> None:
        self.all: list[Worker] = []
        try:
            for number in range(count):
                self.all.append(
                    Worker(context, number=number, arguments=arguments, addresses=addresses)
                )
        except BaseException:  # interrupts too: leave no process
            self.end()
            raise
        self.topology = Topology()
        self.busy_us: list[int] = []
        self.busy_share: list[float] = []
        self._busy_at: list[float] = []

    @property
    def pids(self) -> list[int]:
        return [worker.child.pid for worker in self.all]

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

    def ask(
        self,
        question: ToWorkerStart | Sequence[ToWorkerStart],
        expect: type[Answer],
        *,
        while_waiting: Callable[[], None],
        only: Sequence[int] | None = None,
    ) -> list[Answer]:
        """Ask all workers (or `only` some) one question, or each its own, and wait for all answers.
        They work at it at the same time. Raises the first worker's error, or `EngineFailure` for
        one that died. `while_waiting` is called about once a second."""
        asked = [self.all[number] for number in (only or range(len(self.all)))]
        questions = question if isinstance(question, Sequence) else [question] * len(asked)
        for worker, each in zip(asked, questions, strict=True):
            worker.send_when_connected(each, while_waiting)
        answers: dict[int, Answer] = {}
        while len(answers) < len(asked):
            self._await_input([w for w in asked if w.number not in answers], while_waiting)
            for worker in asked:
                if worker.number in answers:
                    continue
                message = worker.channel.receive()
                if isinstance(message, WorkerFailed):
                    self._raise_failure(worker, message)
                if message is not None:
                    answers[worker.number] = worker.checked(message, expect)
            self.check_alive("while the engine started")
        return [answers[worker.number] for worker in asked]

    def _await_input(self, missing: Sequence[Worker], while_waiting: Callable[[], None]) -> None:
        poller = zmq.Poller()
        for worker in missing:
            poller.register(worker.channel.socket, zmq.POLLIN)
        for worker in self.all:
            poller.register(worker.child.life, zmq.POLLIN)
        poller.poll(_BEAT_MS)
        while_waiting()

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

    def run(self, plan: StepPlan, *, while_waiting: Callable[[], None]) -> float:
        """Run one step alone, before serving; the milliseconds that its slowest stage computed."""
        before = self._ask_busy_and_wait(while_waiting)
        self.send_plan(plan)
        while self.receive_result() is None:
            self._await_input(self.all, while_waiting)
            self.check_alive("in a step of the warm-up")
        after = self._ask_busy_and_wait(while_waiting)
        return max(b - a for a, b in zip(before, after, strict=True)) / 1e3

    def _ask_busy_and_wait(self, while_waiting: Callable[[], None]) -> list[int]:
        reports = self.ask(ReportBusy(), BusyReport, while_waiting=while_waiting)
        for worker, report in zip(self.all, reports, strict=True):
            self._note_busy(worker, report)
        return list(self.busy_us)

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
                self.busy_share[stage] = min(1.0, (busy_us - self.busy_us[stage]) / 1e6 / passed)
                self.busy_us[stage] = busy_us
                self._busy_at[stage] = now

    @property
    def has_input(self) -> bool:
        return any(worker.channel.has_input for worker in self.all)

    def check_alive(self, where: str) -> None:
        """Raise for the first worker whose life line is at its end."""
        for worker in self.all:
            if worker.is_gone:
                worker.report_death(where)

    def report_death(self, where: str) -> NoReturn:
        """Raise for a worker that is gone; one of them is."""
        self.check_alive(where)
        raise EngineFailure(f"a worker is gone {where}")

    def _raise_failure(self, worker: Worker, failure: WorkerFailed) -> NoReturn:
        """Whoever is dead is the cause, whatever others say of it."""
        poller = zmq.Poller()
        others = [other for other in self.all if other is not worker]
        for other in others:
            poller.register(other.child.life, zmq.POLLIN)
        if others and failure.kind == "LaneBroken" and poller.poll(_DEATH_SHOWS_MS):
            for other in others:
                if other.is_gone and not other.has_failed:
                    other.report_death(f"({worker.child.name} says: {failure.message})")
        raise worker.error(failure)

    def stop(self) -> None:
        """Ask all to end, and end those that do not."""
        for worker in self.all:
            worker.ask_to_stop()
        for worker in self.all:
            worker.await_stop()

    def end(self) -> None:
        """End all now, however they are."""
        for worker in self.all:
            worker.end()
