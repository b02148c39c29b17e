"""Connections opened before they are needed, so that no request waits for one."""

from __future__ import annotations

import asyncio
from time import perf_counter_ns

from draftmark.bench.client.answer import Problem
from draftmark.bench.client.transport import Broken, Connection, Receiver, Target, connect

# Servers end idle connections after some seconds (5 in the usual ones). A request must not meet
# that end, so older ones are not used again.
_FRESH_NS = 3_000_000_000
_OPEN_AT_ONCE = 32


class Pool:
    """Idle connections of one server. One that ended meanwhile is replaced when it is missed."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._problem: Broken | None = None

    async def open(self, num: int) -> None:
        """Have `num` connections ready. Raises `Broken` when one cannot be had."""
        gate = asyncio.Semaphore(_OPEN_AT_ONCE)

        async def one() -> None:
            async with gate:
                self._give_back(await self._connect())

        results = await asyncio.gather(*(one() for _ in range(num)), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                self.close()
                raise result

    async def exchange(
        self, request: bytes, receiver: Receiver, *, timeout_s: float
    ) -> tuple[int, Problem | None]:
        """One request over one of the connections: when it ended, and what kept it from its end."""
        try:
            connection = await self._take()
            try:
                return await connection.exchange(request, receiver, timeout_s=timeout_s), None
            finally:
                self._give_back(connection)
        except Broken as error:
            return perf_counter_ns(), error.problem

    def abort(self, problem: Broken) -> None:
        """End every exchange under way, and begin none."""
        self._problem = problem
        for connection in list(self._all):
            connection.abort(problem)

    def close(self) -> None:
        for connection in list(self._all):
            self._drop(connection)
        self._idle.clear()

    async def _take(self) -> Connection:
        """The connection used last, or a new one. Raises `Broken`."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and perf_counter_ns() - connection.idle_since < _FRESH_NS:
                return connection
            self._drop(connection)
        return await self._connect()

    def _give_back(self, connection: Connection) -> None:
        if connection.is_open:
            self._idle.append(connection)
        else:
            self._drop(connection)

    async def _connect(self) -> Connection:
        connection = await connect(self._target)
        if self._problem is not None:  # meanwhile
            connection.close()
            raise Broken(self._problem.problem.failure, self._problem.problem.text)
        self._all.add(connection)
        return connection

    def _drop(self, connection: Connection) -> None:
        connection.close()
        self._all.discard(connection)
