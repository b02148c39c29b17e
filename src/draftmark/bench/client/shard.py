"""One process of the load client: opens its connections, sends at its times, tells what came.

Told over its standard input and answering over its output (`messages`). It does nothing else while
a run lasts, so that the time of an arrival is that of the loop's next turn; how late those turns
are is measured by ticks that the parent writes with their time.

The loop is asyncio's own. On plain sockets uvloop takes about as much time, its timers are
early by up to a millisecond, and a connection that was reset is told to its exception handler
instead of to the reader, who then waits for ever.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter_ns

from draftmark.bench.client.answer import Answer, Problem
from draftmark.bench.client.messages import (
    AskClock,
    Clock,
    Ended,
    Finished,
    Frames,
    FromShard,
    Halt,
    NotOpened,
    Opened,
    Progress,
    Resume,
    Setup,
    Start,
    Suspect,
    Tick,
    ToShard,
    decode_to_shard,
    frame,
)
from draftmark.bench.client.pool import Pool
from draftmark.bench.client.transport import Broken, parse_url, request_bytes
from draftmark.bench.request import Failure, PlannedRequest

_PROGRESS_S = 0.25
# What a connection meets when the server behind it dies.
_SUSPICIOUS = (Failure.REFUSED, Failure.RESET, Failure.CONNECT_TIMEOUT)


class Shard:
    """One run's share of one process."""

    def __init__(self, setup: Setup, send: Callable[[FromShard], None]) -> None:
        self._setup = setup
        self._share = setup.share
        self._send_message = send
        self._target = parse_url(setup.url)
        self._pool = Pool(self._target)
        self._may_send = asyncio.Event()
        self._halted = asyncio.Event()
        self._origin = 0
        self._active: set[Answer] = set()
        # Answers that came to their end, and when.
        self._unreported: asyncio.Queue[tuple[Answer, int]] = asyncio.Queue()
        self._sent = self._ended_tokens = 0
        self._may_send.set()
        # Of each tick, microseconds.
        self.lags_us: list[int] = []

    async def open(self) -> None:
        try:
            await self._pool.open(self._share.connections)
        except Broken as error:
            self._send_message(NotOpened(reason=str(error)))
        else:
            self._send_message(Opened())

    async def run(self, origin: int) -> None:
        """From `origin`, on this process's clock, until every request has ended or a halt."""
        self._origin = origin
        await self._sleep_until(origin)
        aside = [asyncio.create_task(self._tell()), asyncio.create_task(self._report())]
        if self._share.queue_fd is None:
            await self._run_open()
        else:
            await asyncio.gather(*(self._lane() for _ in range(self._share.lanes)))
        self._pool.close()
        for task in aside:
            task.cancel()
        for ended in await asyncio.gather(*aside, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended  # a record is missing: no end of a run
        while not self._unreported.empty():
            self._end(*self._unreported.get_nowait(), None)

    def resume(self) -> None:
        self._may_send.set()

    def halt(self, message: Halt) -> None:
        failure = Failure.RESET if message.server_is_gone else Failure.CLIENT_ERROR
        self._halted.set()
        self._may_send.set()
        self._pool.abort(Broken(failure, message.reason))

    async def _run_open(self) -> None:
        tasks = []
        for plan in self._share.plans:
            assert plan.at_s is not None, "an open loop has times"
            await self._sleep_until(self._origin + round(plan.at_s * 1e9))
            await self._may_send.wait()
            if self._halted.is_set():
                break
            tasks.append(asyncio.create_task(self._request(plan)))
        await asyncio.gather(*tasks)

    async def _lane(self) -> None:
        while True:
            await self._may_send.wait()
            if self._halted.is_set():
                return
            plan = self._next()
            if plan is None:
                return
            await self._request(plan)

    def _next(self) -> PlannedRequest | None:
        """The position of the file is one for all shards: each number is read by one of them."""
        assert self._share.queue_fd is not None
        place = os.read(self._share.queue_fd, 4)
        return self._share.plans[int.from_bytes(place, "little")] if place else None

    async def _request(self, plan: PlannedRequest) -> None:
        answer = Answer(plan, origin=self._origin, keep_text=self._setup.keep_text)
        request = request_bytes(
            self._target, plan.path, body=plan.body, api_key=self._setup.api_key
        )
        self._sent += 1
        self._active.add(answer)
        now, problem = await self._pool.exchange(request, answer, timeout_s=self._setup.timeout_s)
        self._active.remove(answer)
        if problem is None:
            self._unreported.put_nowait((answer, now))
        else:
            self._end(answer, now, problem)

    async def _report(self) -> None:
        """Records are made and told after the next requests are on their way: several answers end
        in one step of a server, and their lanes must not wait for one another's bookkeeping."""
        while True:
            answer, now = await self._unreported.get()
            self._end(answer, now, None)
            await asyncio.sleep(0)

    def _end(self, answer: Answer, now: int, problem: Problem | None) -> None:
        record = answer.end(now, problem)
        self._ended_tokens += record.n_out or 0
        self._send_message(Ended(record=record))
        has_broken = problem is not None and problem.failure in _SUSPICIOUS
        if has_broken and record.failure is not None and not self._halted.is_set():
            self._may_send.clear()
            self._send_message(Suspect(index=record.i))

    async def _sleep_until(self, at: int) -> None:
        """Or until a halt. Never early, whatever the loop's timers do."""
        while not self._halted.is_set() and (left := (at - perf_counter_ns()) / 1e9) > 0:
            with suppress(TimeoutError):  # the usual: nobody called a halt meanwhile
                async with asyncio.timeout(left):
                    await self._halted.wait()

    async def _tell(self) -> None:
        told = 0
        while True:
            await asyncio.sleep(_PROGRESS_S)
            new, told = self.lags_us[told:], len(self.lags_us)
            streams = (answer.stream for answer in self._active)
            tokens = sum(stream.tokens_so_far for stream in streams if stream is not None)
            tokens += self._ended_tokens
            self._send_message(
                Progress(sent=self._sent, tokens=tokens, lag_us=max(new, default=None))
            )


class Link:
    """The pipes to the parent. Each message is acted on as it is read."""

    def __init__(self) -> None:
        self.shard: Shard | None = None
        loop = asyncio.get_running_loop()
        self.setup: asyncio.Future[Setup] = loop.create_future()
        self.start: asyncio.Future[Start] = loop.create_future()
        self.parent_gone = loop.create_future()
        self._frames = Frames()
        self._offset = 0
        os.set_blocking(sys.stdin.fileno(), False)
        loop.add_reader(sys.stdin.fileno(), self._readable)

    def send(self, message: FromShard) -> None:
        data = memoryview(frame(message))
        while data:
            data = data[os.write(sys.stdout.fileno(), data) :]

    def _readable(self) -> None:
        data = os.read(sys.stdin.fileno(), 1 << 20)
        now = perf_counter_ns()
        if not data:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self.parent_gone.set_result(None)
        for content in self._frames.feed(data):
            self._act(decode_to_shard(content), now)

    def _act(self, message: ToShard, now: int) -> None:
        match message:
            case Tick() if self.shard is not None:
                self.shard.lags_us.append(max(0, now - message.t - self._offset) // 1000)
            case AskClock():
                self.send(Clock(asked=message.asked, now=perf_counter_ns()))
            case Setup():
                self.setup.set_result(message)
            case Start():
                self._offset = message.offset
                self.start.set_result(message)
            case Resume() if self.shard is not None:
                self.shard.resume()
            case Halt() if self.shard is not None:
                self.shard.halt(message)


async def _work(link: Link) -> None:
    setup = await link.setup
    shard = link.shard = Shard(setup, link.send)
    await shard.open()
    start = await link.start
    # Nothing of a run makes cycles worth looking for, and looking would stop the loop.
    gc.collect()
    gc.disable()
    cpu, wall = time.process_time_ns(), perf_counter_ns()
    await shard.run(start.at)
    cpu, wall = time.process_time_ns() - cpu, perf_counter_ns() - wall
    link.send(Finished(lags_us=shard.lags_us, cpu_ns=cpu, wall_ns=wall))


async def _main() -> None:
    link = Link()
    work = asyncio.create_task(_work(link))
    await asyncio.wait({work, link.parent_gone}, return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        work.result()
    work.cancel()


def main() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        # Each request in flight has a socket; the usual soft limit is 1,024.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(_main())


if __name__ == "__main__":
    main()
