"""`EngineClient`: the engine as the API process sees it (asyncio, one event loop).

Every request that `submit` took gets exactly one end, whatever dies: the engine ends it, or this
file does when the engine is gone, silent for too long or told to close.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import secrets
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from draftmark.core.declared import Declared
from draftmark.core.errors import DraftmarkError, EngineFailure, Overloaded, Unavailable
from draftmark.core.faults import error_from
from draftmark.core.messages import (
    Abort,
    Add,
    CacheWasReset,
    Drain,
    EngineState,
    EngineStats,
    Finish,
    ReportStacks,
    RequestOutput,
    ResetCache,
    StacksReport,
    StepOutputs,
)
from draftmark.core.request import FinishReason, Request
from draftmark.core.start import WorkerFailed
from draftmark.core.torchrun import read_place
from draftmark.core.validate import check_built
from draftmark.engine.channel import EngineInit, FromEngineProcess
from draftmark.engine.launch import WORKER_MODULE
from draftmark.engine.remote import check_place
from draftmark.engine.source import Progress, Source, resolve_source
from draftmark.engine.stream import OutputStream
from draftmark.engine.supervisor import EngineProcess
from draftmark.engine.threads import in_thread

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_TICK_S = 0.5
_FIRST_WORD_S = 60.0  # a cold start of Python from a slow disk
_FAIL_GRACE_S = 4.0  # for the engine to write stacks and to end its workers
_SILENT_GRACE_S = 1.5  # for a loop that hangs, not the process: it writes stacks still
_STACKS_S = 3.0
_CLOSE_GRACE_S = 5.0


def _no_progress(phase: str) -> None:
    pass


class EngineClient:
    """Starts the engine and speaks to it. Made by `launch` (loading) or `start` (ready).

    `state.state` goes loading -> ready -> draining, or to failed from anywhere. The engine says
    something at least once a second; after `silence_limit_s` without a word it has failed.
    """

    def __init__(
        self,
        declared: Declared,
        *,
        progress: Progress = _no_progress,
        worker: Sequence[str] = WORKER_MODULE,
        silence_limit_s: float = 5.0,
    ) -> None:
        self.declared = declared
        self.start_id = secrets.token_hex(8)
        self._progress = progress
        self._worker = tuple(worker)
        self._silence_limit_s = silence_limit_s
        self._source: Source | None = None
        self._process: EngineProcess | None = None
        self._state = EngineState("loading", "starting")
        self._stats = EngineStats()
        self._error: DraftmarkError | None = None
        self._streams: dict[int, OutputStream] = {}
        self._resets: dict[int, asyncio.Future[int]] = {}
        self._reports: dict[int, asyncio.Future[str]] = {}
        self._ids = itertools.count(1)
        self.most_in_flight = 0
        self._quiet_s = 0.0
        self._quiet_limit_s = _FIRST_WORD_S
        self._settled = asyncio.Event()  # ready or failed
        self._ended = asyncio.Event()  # nothing of the engine is left
        self._tasks: list[asyncio.Task[None]] = []
        self._closing: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    @classmethod
    def launch(cls, declared: Declared, **options: Any) -> EngineClient:
        """A client that is loading. `wait_ready` waits and raises what the start died of."""
        client = cls(declared, **options)
        client._tasks = [asyncio.create_task(client._start()), asyncio.create_task(client._watch())]
        return client

    @classmethod
    async def start(cls, declared: Declared, **options: Any) -> EngineClient:
        """A client that is ready. Raises `ConfigError`, `ModelError` or `EngineFailure`."""
        client = cls.launch(declared, **options)
        try:
            await client.wait_ready()
        except BaseException:  # cancellation too: leave nothing running
            await client.close()
            raise
        return client

    async def wait_ready(self) -> None:
        await self._settled.wait()
        if self._error is not None:
            raise self._error

    async def wait_ended(self) -> EngineState:
        """Return once the engine is gone for good, with the state it ended in."""
        await self._ended.wait()
        return self._state

    @property
    def state(self) -> EngineState:
        return self._state

    @property
    def stats(self) -> EngineStats:
        """At most 100 ms old while the engine works, a second while it idles."""
        return self._stats

    @property
    def ready(self) -> dict[str, object]:
        """The ready record; empty before the engine was ready."""
        return self._state.ready or {}

    @property
    def source(self) -> Source:
        """Where the model was found; known from `wait_ready` on."""
        assert self._source is not None, "the model's source is not known yet"
        return self._source

    def new_ids(self, count: int) -> list[int]:
        return list(itertools.islice(self._ids, count))

    def submit(self, requests: Sequence[Request]) -> list[OutputStream]:
        """Queue all of them or raise `Unavailable` or `Overloaded` at once; never waits."""
        if self._state.state != "ready":
            raise Unavailable(f"the engine is {self._state.state}: {self._state.detail}")
        if len(self._streams) + len(requests) > self.most_in_flight:
            raise Overloaded(
                f"{len(self._streams)} requests are running or waiting, the limit is "
                f"{self.most_in_flight}; retry later"
            )
        streams = [OutputStream(request.id) for request in requests]
        self._streams |= {stream.id: stream for stream in streams}
        self._send(Add(list(requests)))
        return streams

    def abort(self, ids: Sequence[int]) -> None:
        """The reader left. Ids that have ended are ignored."""
        live = [request_id for request_id in ids if request_id in self._streams]
        if live:
            self._send(Abort(live))

    def finish(self, request_id: int, num_tokens: int, reason: FinishReason) -> None:
        """End a request after its output token number `num_tokens`."""
        if request_id in self._streams:
            self._send(Finish(request_id, num_tokens, reason))

    async def reset_cache(self) -> int:
        """Drop cached pages that nothing uses; their number."""
        if self._state.state != "ready":
            raise Unavailable(f"the engine is {self._state.state}: {self._state.detail}")
        [token] = self.new_ids(1)
        self._resets[token] = asyncio.get_running_loop().create_future()
        self._send(ResetCache(token))
        return await self._resets[token]

    async def stacks(self) -> str:
        """What every stage is at, and the stacks of the engine process and its workers. Raises
        `Unavailable` when the engine does not answer within seconds."""
        if self._state.state not in ("ready", "draining") or self._ending is not None:
            raise Unavailable(f"the engine is {self._state.state}: {self._state.detail}")
        [token] = self.new_ids(1)
        self._reports[token] = asyncio.get_running_loop().create_future()
        self._send(ReportStacks(token))
        try:
            return await asyncio.wait_for(self._reports[token], _STACKS_S)
        except TimeoutError as error:
            raise Unavailable(f"the engine did not answer within {_STACKS_S:g} s") from error
        finally:
            del self._reports[token]

    def dump_stacks(self) -> None:
        """Have the engine process write `stacks` to a file and its own to the log: also where its
        loop hangs."""
        if self._process is not None:
            self._process.child.ask_for_stacks()

    async def drain(self, timeout_s: float) -> None:
        """Take no more requests, let the running ones end within `timeout_s`, then close."""
        if self._state.state == "ready":
            self._state = EngineState("draining", "shutting down", self._state.ready)
            self._send(Drain())
            try:
                await asyncio.wait_for(self._ended.wait(), timeout_s)
            except TimeoutError:
                logger.warning("%d requests are cut off after %g s", len(self._streams), timeout_s)
        await self.close()

    async def close(self) -> None:
        """End everything that was started; requests in flight end with an error. Idempotent."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._cancel_tasks()
        was_serving = self._state.state in ("ready", "draining") and not self._ended.is_set()
        if was_serving:
            self._send(Abort(list(self._streams)))
            self._send(Drain())
        if self._state.state != "failed":
            self._state = EngineState("draining", "closed", self._state.ready)
            self._error = Unavailable("the engine was closed")
        self._end_streams("the engine was closed", status=503)
        self._settled.set()
        await self._end_process(_CLOSE_GRACE_S if was_serving else 0.0)

    # -- from the engine

    async def _start(self) -> None:
        try:
            check_built(self.declared.config)
            place = read_place(os.environ)
            if place is not None:
                check_place(place, self.declared, rank=0)
            self._source = await in_thread(
                lambda progress: resolve_source(self._model, progress=progress), self._progress
            )
            init = EngineInit(
                model_dir=str(self._source.directory),
                model_rule=self._source.rule,
                declared=self.declared,
                worker=list(self._worker),
                start_id=self.start_id,
                place=place,
            )
            self._process = EngineProcess(
                init, on_message=self._take, on_gone=self._see_end, on_fault=self._fail
            )
        except DraftmarkError as error:
            self._fail(error.message, error=error)
        except Exception as error:
            # Process edge: nobody awaits this task, and whoever waits for ready must hear of it.
            logger.exception("cannot start the engine")
            self._fail(f"cannot start the engine: {error}")

    @property
    def _model(self) -> str:
        return self.declared.config.model.model

    def _send(self, message: object) -> None:
        assert self._process is not None
        self._process.send(message)

    def _take(self, message: FromEngineProcess) -> None:
        self._quiet_s = 0.0
        self._quiet_limit_s = self._silence_limit_s
        match message:
            case StepOutputs(outputs, stats):
                for output in outputs:
                    self._deliver(output)
                if stats is not None:
                    self._stats = stats
            case EngineState():
                self._take_state(message)
            case CacheWasReset(token, pages_dropped):
                _settle(self._resets.pop(token), pages_dropped)
            case StacksReport(token, text):
                if token in self._reports:  # else it came too late
                    _settle(self._reports[token], text)
            case WorkerFailed():
                if message.traceback:
                    logger.error("%s", message.traceback)
                error = error_from(message)
                self._fail(error.message, error=error)

    def _deliver(self, output: RequestOutput) -> None:
        stream = self._streams.get(output.id)
        if stream is None:
            return  # closed here meanwhile
        if output.finish is not None:
            del self._streams[output.id]
        stream.push(output)

    def _take_state(self, message: EngineState) -> None:
        if self._state.state != "loading":
            return
        if message.state == "ready":
            assert message.ready is not None
            logger.info("ready %s", json.dumps(message.ready))
            self.most_in_flight = (
                msgspec.convert(message.ready["max_running"], int)
                + self.declared.config.schedule.max_queue
            )
            self._state = message
            self._settled.set()
            return
        if message.ready is not None and self._process is not None:
            pids = msgspec.convert(message.ready["worker_pids"], list[int])
            self._process.remember_workers(pids)
        if message.detail != self._state.detail:
            self._progress(message.detail)
        self._state = EngineState("loading", message.detail)

    async def _watch(self) -> None:
        """Notice an engine that says nothing. Counted in turns of this loop, so that a pause of
        the whole machine or of this process is not held against the engine.
        """
        while not self._ended.is_set():
            await asyncio.sleep(_TICK_S)
            if self._process is None or self._state.state == "failed":
                continue
            self._quiet_s += _TICK_S
            if self._quiet_s > self._quiet_limit_s:
                pid = self._process.child.pid
                self.dump_stacks()
                reason = f"the engine process (pid {pid}) was silent for {self._quiet_s:g} s"
                self._fail(reason, grace_s=_SILENT_GRACE_S)

    def _see_end(self) -> None:
        assert self._process is not None
        if self._state.state == "draining" and self._process.child.poll() == 0:
            self._end_streams("the engine ended", status=503)
            self._end_process(0.0)
        else:
            self._fail(self._process.child.describe_end())

    def _fail(
        self,
        reason: str,
        *,
        error: DraftmarkError | None = None,
        grace_s: float = _FAIL_GRACE_S,
    ) -> None:
        """Once: every stream ends with the reason, the process and its workers are ended."""
        if self._state.state == "failed" or self._closing is not None:
            return
        logger.error("the engine failed: %s", reason)
        self._state = EngineState("failed", reason, self._state.ready)
        self._error = error or EngineFailure(reason)
        self._end_streams(reason, status=500)
        self._settled.set()
        self._end_process(grace_s)

    def _end_streams(self, reason: str, *, status: int) -> None:
        for stream in self._streams.values():
            stream.push(
                RequestOutput(stream.id, [], FinishReason.ERROR, error=reason, error_status=status)
            )
        self._streams.clear()
        asked: list[asyncio.Future[Any]] = [*self._resets.values(), *self._reports.values()]
        for future in asked:
            if not future.done():
                future.set_exception(Unavailable(reason))
        self._resets.clear()

    def _end_process(self, grace_s: float) -> asyncio.Task[None]:
        """Begin to end what was started, once; the first caller's grace holds."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._leave_nothing(grace_s))
        return self._ending

    async def _leave_nothing(self, grace_s: float) -> None:
        if self._process is not None:
            await self._process.end(grace_s=grace_s)
        await self._cancel_tasks()
        self._ended.set()

    async def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _settle(future: asyncio.Future[Result], result: Result) -> None:
    """Unless whoever waited has left."""
    if not future.done():
        future.set_result(result)
