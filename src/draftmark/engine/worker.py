"""A worker process as the engine sees it: its child, its channel, what it is at, its last words."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import tempfile
from collections import deque
from collections.abc import Sequence
from typing import Protocol, TypeVar

import psutil
import zmq

from draftmark.core.errors import DraftmarkError, EngineFailure
from draftmark.core.faults import error_from
from draftmark.core.start import Stop, WorkerFailed
from draftmark.core.trace import TraceFile
from draftmark.engine.channel import Channel, FromWorker, PeerGone, decode_from_worker
from draftmark.engine.launch import Addresses, start_child

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

_REAP_S = 0.5
# How lines begin that Python's fault handler writes below the one that names the fault.
_OF_A_DUMP = ("  File ", "Thread 0x", "Current thread ", "Extension modules:")


class LiveProcess(Protocol):
    """A worker's process, a child of ours or not: `launch.Child` says what each means."""

    name: str
    tail: deque[str]

    @property
    def pid(self) -> int: ...

    @property
    def life(self) -> socket.socket: ...

    @property
    def wrote_at(self) -> float: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout_s: float) -> int | None: ...

    def ask_for_stacks(self) -> None: ...

    def begin_kill(self) -> None: ...

    def kill(self) -> None: ...

    def describe_end(self) -> str: ...


class Stacks(Protocol):
    """Where a worker's stacks come from."""

    def take(self) -> str: ...

    def close(self) -> None: ...


class StacksFile:
    """Where a worker writes its stacks, without a name; the engine reads what was added."""

    def __init__(self) -> None:
        self.fd, path = tempfile.mkstemp(prefix="draftmark-stacks-")
        os.unlink(path)
        self._read = 0

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def take(self) -> str:
        """What was written since the last time."""
        data = os.pread(self.fd, self.size - self._read, self._read)
        self._read += len(data)
        return data.decode(errors="replace")

    def close(self) -> None:
        os.close(self.fd)


class Worker:
    """Worker number `number`. `channel` carries questions first, then plans and results; `trace`
    says what it is at."""

    _is_ended = False

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        *,
        number: int,
        arguments: Sequence[str],
        addresses: Addresses,
    ) -> None:
        self.number = number
        self.trace = TraceFile.create()
        stacks = StacksFile()
        self.stacks: Stacks = stacks
        address = addresses.worker(number)
        self.channel: Channel[FromWorker] = Channel.bind(
            context, address=address, decode=decode_from_worker
        )
        self.child: LiveProcess = start_child(
            f"worker {number}",
            arguments=[*arguments, "--address", address],
            fds={"--trace-fd": self.trace.fd, "--stacks-fd": stacks.fd},
        )

    @property
    def is_gone(self) -> bool:
        """Whether its life line is at its end."""
        ready, _, _ = select.select([self.child.life], [], [], 0)
        return bool(ready)

    @property
    def state(self) -> str:
        """Of the process, as the system tells it, e.g. `stopped`."""
        try:
            return str(psutil.Process(self.child.pid).status())
        except psutil.NoSuchProcess:  # which is the answer
            return "gone"

    def hear_last_words(self) -> WorkerFailed | None:
        """What it says it died of, as far as it has come; results that came before are dropped."""
        while (message := self.channel.receive()) is not None:
            if isinstance(message, WorkerFailed):
                return message
        return None

    def describe_end(self) -> str:
        """e.g. `worker 0 (pid 17) exited with status 9`."""
        self.child.wait(_REAP_S)
        return self.child.describe_end()

    @property
    def last_line(self) -> str:
        """A clause about the last line it wrote that says something, if any."""
        lines = [line for line in self.child.tail if line and not line.startswith(_OF_A_DUMP)]
        return f"; it wrote last: {lines[-1]}" if lines else ""

    def ask_to_stop(self) -> None:
        with contextlib.suppress(PeerGone):  # it was first
            self.channel.send(Stop())

    def await_stop(self, timeout_s: float) -> None:
        """It was asked to end; end it if it does not."""
        self.child.wait(timeout_s)
        self.end()

    def end(self) -> None:
        """End it now, however it is. Idempotent."""
        if self._is_ended:
            return
        self._is_ended = True
        self.child.kill()
        self.channel.close()
        self.trace.close()
        self.stacks.close()

    def checked(self, message: FromWorker, expected: type[Answer]) -> Answer:
        assert isinstance(message, expected), f"{self.child.name} sent {type(message).__name__}"
        return message

    def error(self, failure: WorkerFailed) -> DraftmarkError:
        """What to raise for its last words."""
        if failure.traceback:
            logger.error("%s crashed:\n%s", self.child.name, failure.traceback)
            return EngineFailure(f"{self.child.name} crashed: {failure.message}")
        error = error_from(failure)
        if isinstance(error, EngineFailure):
            return EngineFailure(f"{self.child.name}: {error.message}")
        return error
