"""The spine: take messages, commit results, plan, send, tell. Everything else hangs off this loop.

Plans run one step ahead: a second plan is sent before the first one's result is here, so the worker
never waits for us. Plans go out before outputs do, because the worker is what must not wait.
"""

from __future__ import annotations

import math
import select
import time
from pathlib import Path

import msgspec

from draftmark.cache.manager import CacheManager
from draftmark.core.errors import EngineFailure
from draftmark.core.messages import (
    Abort,
    Add,
    CacheWasReset,
    Drain,
    Finish,
    ReportStacks,
    RequestOutput,
    ResetCache,
    StepOutputs,
)
from draftmark.core.recording import PlanRecorder
from draftmark.core.step import StepResult
from draftmark.engine.channel import Channel, EngineInit, PeerGone, ToEngineProcess
from draftmark.engine.draft_health import DraftHealth
from draftmark.engine.stacks import StackReports
from draftmark.engine.startup import Started
from draftmark.engine.watchdog import StepWatch
from draftmark.engine.workers import Workers
from draftmark.scheduler.policy import Limits
from draftmark.scheduler.scheduler import Scheduler

_STATS_S = 0.1
_HEARTBEAT_S = 1.0


class Engine:
    """One scheduler, its workers, one client. Times are seconds of `time.monotonic`."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        workers: Workers,
        client: Channel[ToEngineProcess],
        watch: StepWatch,
        reports: StackReports,
        stop_on_nan: bool = False,
        recorder: PlanRecorder | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._workers = workers
        self._client = client
        self._watch = watch
        self._reports = reports
        self._stop_on_nan = stop_on_nan
        self._recorder = recorder
        self._draft_health = DraftHealth()
        self._is_draining = False
        self._stats_at = 0.0
        self._has_news = True
        self._cpu_at_start_ns = time.process_time_ns()
        self._may_have_messages = True
        self._client_fd = client.fd
        self._life_fds = {worker.child.life.fileno() for worker in workers.all}
        self._poller = select.poll()
        channels = [worker.channel.fd for worker in workers.all]
        for fd in (self._client_fd, *channels, *self._life_fds):
            self._poller.register(fd, select.POLLIN)

    def run(self) -> None:
        """Until drained. Raises `EngineFailure` when the worker dies or hangs."""
        while not self._is_draining or self._scheduler.has_work:
            self._wait()
            self.step()

    def step(self) -> None:
        """One turn. Does what there is to do, and nothing twice."""
        outputs = self._take_messages() if self._may_have_messages else []
        outputs += self._commit_result()
        self._send_plans()
        self._tell(outputs)

    def _take_messages(self) -> list[RequestOutput]:
        outputs: list[RequestOutput] = []
        while (message := self._client.receive()) is not None:
            self._has_news = True
            match message:
                case Add(requests):
                    outputs += self._scheduler.add(requests)
                case Abort(ids):
                    outputs += self._scheduler.abort(ids)
                case Finish(request_id, num_tokens, reason):
                    outputs += self._scheduler.finish(request_id, num_tokens, reason)
                case ResetCache(token):
                    self._client.send(CacheWasReset(token, self._scheduler.reset_cache()))
                case ReportStacks(token):
                    self._reports.begin(token)
                case Drain():
                    self._is_draining = True
                case EngineInit():
                    raise AssertionError("the engine was started twice")
        return outputs

    def _commit_result(self) -> list[RequestOutput]:
        """One a turn: another one that is here already makes the next wait return at once."""
        result = self._workers.receive_result()
        if result is None:
            return []
        self._has_news = True
        self._watch.arrived(now=time.monotonic())
        if self._recorder is not None:
            self._recorder.result(result)
        outputs = self._scheduler.commit(result)
        if self._stop_on_nan:
            _refuse_nan(result)
        return outputs

    def _send_plans(self) -> None:
        while (plan := self._scheduler.plan()) is not None:
            try:
                self._workers.send_plan(plan)
            except PeerGone:
                self._workers.report_death(self._watch.describe(now=time.monotonic()))
            if self._recorder is not None:
                self._recorder.plan(plan)
            self._watch.sent(plan.step, now=time.monotonic())

    def _tell(self, outputs: list[RequestOutput]) -> None:
        """One message a turn at most, with stats when they are due; a heartbeat when idle."""
        for report in self._reports.finished():
            self._client.send(report)
        now = time.monotonic()
        is_due = now >= self._next_word
        if not outputs and not is_due:
            return
        stats = None
        if is_due:
            cpu_us = (time.process_time_ns() - self._cpu_at_start_ns) // 1000
            stats = msgspec.structs.replace(
                self._scheduler.stats(),
                engine_us=cpu_us,
                stage_busy_us=self._workers.busy_us,
                stage_busy_share=self._workers.busy_share,
                cohort_rows=[rows for rows, _ in self._scheduler.cohort_loads()],
            )
            self._draft_health.look(stats.drafts)
            self._workers.ask_busy()
            self._stats_at = now
            self._has_news = self._reports.is_busy  # then look again soon
        self._client.send(StepOutputs(outputs, stats))

    @property
    def _next_word(self) -> float:
        """When stats must be sent: soon after anything changed, else as a heartbeat."""
        return self._stats_at + (_STATS_S if self._has_news else _HEARTBEAT_S)

    def _wait(self) -> None:
        """Sleep until a message, a result, the worker's death, or the next thing due."""
        now = time.monotonic()
        self._watch.check(now=now)
        # Sending may have swallowed the edge that announces input.
        self._may_have_messages = self._client.has_input
        if self._may_have_messages or self._workers.has_input:
            return
        due = self._next_word
        if self._watch.deadline is not None:
            due = min(due, self._watch.deadline)
        ready = [fd for fd, _ in self._poller.poll(max(0, math.ceil((due - now) * 1000)))]
        self._may_have_messages = self._client_fd in ready
        if not self._life_fds.isdisjoint(ready):
            self._workers.check_alive(self._watch.describe(now=time.monotonic()))


def make_engine(
    started: Started,
    *,
    workers: Workers,
    client: Channel[ToEngineProcess],
    reports: StackReports,
) -> Engine:
    """The engine of workers that are ready. Raises `ConfigError` for an unwritable recording."""
    resolved, budget = started.resolved, started.budget
    limits = Limits(
        max_context=budget.max_context,
        max_running=resolved.max_running,
        prefill_tokens=resolved.prefill_tokens,
        max_turn_ms=resolved.config.schedule.max_turn_ms,
        num_cohorts=workers.topology.cohorts,
        max_drafts=resolved.draft_tokens,
        adapts_drafts=resolved.adapts_drafts,
        drafts_from_ids=resolved.config.speculation.draft == "ngram",
    )
    path = resolved.config.debug.record_plans
    manager = CacheManager(
        num_pages=budget.num_pages,
        num_slots=budget.num_slots,
        num_cohorts=workers.topology.cohorts,
        num_snapshots=budget.num_snapshots,
    )
    return Engine(
        Scheduler(limits, manager, cost_table=started.cost_table, topology=workers.topology),
        workers=workers,
        client=client,
        watch=StepWatch(resolved.config.debug.step_timeout_s, workers),
        reports=reports,
        stop_on_nan=resolved.config.debug.on_nan == "stop",
        recorder=PlanRecorder(Path(path), started.header) if path is not None else None,
    )


def _refuse_nan(result: StepResult) -> None:
    """`--on-nan stop`: the request was failed by the scheduler; the server ends too."""
    hits = [(row.slot, row.bad_layer) for row in result.rows if row.bad_layer >= 0]
    hits += [(slot, layer) for slot, _, layer in result.bad_prefill]
    if hits:
        slot, layer = hits[0]
        raise EngineFailure(
            f"a non-finite value in layer {layer}, step {result.step}, slot {slot} (--on-nan stop)"
        )
