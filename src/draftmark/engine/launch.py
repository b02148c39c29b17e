"""Starts and ends child processes, and names every address once.

A child and its parent hold the two ends of a socket pair; whichever dies, the other reads end of
file at once, kill -9 included. Sockets lie in a private directory that is removed as soon as both
sides are connected: a Unix socket needs its name only to connect, so a running engine leaves
nothing behind however it ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from draftmark.core.errors import ConfigError
from draftmark.engine.logs import relay

ENGINE_MODULE = ("-m", "draftmark.engine.process")
WORKER_MODULE = ("-m", "draftmark.runtime.worker")

_MAX_SOCKET_PATH = 100  # the kernel's limit is 108 bytes on Linux, 104 on macOS
_TUNABLES = "GLIBC_TUNABLES"
_HUGE_PAGES_KEY = "glibc.malloc.hugetlb"
_TAIL_LINES = 40
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Addresses:
    """The private directory (mode 0700) and the addresses in it."""

    directory: Path

    @classmethod
    def create(cls) -> Addresses:
        directory = Path(tempfile.mkdtemp(prefix="draftmark-"))
        if len(str(directory)) + len("/worker-99") > _MAX_SOCKET_PATH:
            directory.rmdir()
            raise ConfigError(
                f"the temporary directory {directory.parent} has too long a name for a socket; "
                "set TMPDIR to a shorter one"
            )
        return cls(directory)

    @classmethod
    def beside(cls, address: str) -> Addresses:
        """From one address in it."""
        return cls(Path(address.removeprefix("ipc://")).parent)

    @property
    def engine(self) -> str:
        return f"ipc://{self.directory / 'engine'}"

    def worker(self, rank: int) -> str:
        return f"ipc://{self.directory / f'worker-{rank}'}"

    def remove(self) -> None:
        """Remove the directory; does nothing when it is gone. Connected sockets live on."""
        with contextlib.suppress(FileNotFoundError):  # removed by the other side
            shutil.rmtree(self.directory)


class Child:
    """A process of ours, its life line and the last lines it wrote.

    `life` is readable (end of file) once the process is gone; `wrote_at` is when it wrote its last
    line, or was started (`time.monotonic`). Signals go to this child only, by
    its own handle, so a reused process id cannot be hit.
    """

    def __init__(self, name: str, process: subprocess.Popen[bytes], life: socket.socket) -> None:
        self.name = name
        self.life = life
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self.wrote_at = time.monotonic()
        self._process = process
        self._wrote = threading.Event()
        self._pump = threading.Thread(target=self._pump_lines, name=f"{name}-log", daemon=True)
        self._pump.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """The exit status (negative: the signal that killed it), or None while it runs."""
        return self._process.poll()

    def wait(self, timeout_s: float) -> int | None:
        """The exit status, or None when the process still runs after `timeout_s`."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:  # the answer None says it
            return None

    def ask_for_stacks(self) -> None:
        """Have the child write the stacks of all its threads, where it was told to (nothing if
        stopped)."""
        self._wrote.clear()
        self._process.send_signal(signal.SIGUSR1)

    def await_lines(self, timeout_s: float) -> None:
        """Return when the child wrote something and then paused, or after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while self._wrote.wait(max(0.0, deadline - time.monotonic())):
            self._wrote.clear()
            if not self._wrote.wait(_PAUSE_S):
                return

    def begin_kill(self) -> None:
        """End it now, without waiting until it is gone."""
        self._process.kill()

    def kill(self) -> None:
        """End it now and reap it; its last lines are in `tail` afterwards."""
        self._process.kill()
        self._process.wait()
        self.settle()

    def settle(self) -> None:
        """Release what is held for a child that is gone."""
        self._pump.join(1.0)
        self.life.close()

    def describe_end(self) -> str:
        """One clause for people, e.g. `worker 0 (pid 17) was killed by signal 9 (SIGKILL)`."""
        status = self._process.poll()
        who = f"{self.name} (pid {self.pid})"
        if status is None:
            return f"{who} closed its life line"
        if status < 0:
            return f"{who} was killed by signal {-status} ({signal.Signals(-status).name})"
        return f"{who} exited with status {status}"

    def _pump_lines(self) -> None:
        logger = logging.getLogger(f"draftmark.{self.name.replace(' ', '')}")
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for raw in lines:
                line = raw.decode(errors="replace").rstrip()
                self.tail.append(line)
                self.wrote_at = time.monotonic()
                relay(line, logger=logger)
                self._wrote.set()


def start_child(
    name: str, *, arguments: Sequence[str], fds: Mapping[str, int] | None = None
) -> Child:
    """Start `python ARGUMENTS --parent-fd N`, and an argument for each of `fds`, which the child
    inherits. The child is in a process group of its own, so that
    Ctrl-C in a terminal reaches only the parent, which decides; and so that the kernel wakes and
    ends it if its parent dies while it is stopped.
    """
    ours, theirs = socket.socketpair()
    inherited = {"--parent-fd": theirs.fileno(), **(fds or {})}
    told = [word for flag, fd in inherited.items() for word in (flag, str(fd))]
    with theirs:
        process = subprocess.Popen(
            # -P: a file in the working directory must not shadow a module of a child.
            [sys.executable, "-P", *arguments, *told],
            pass_fds=list(inherited.values()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
            env=child_environment(),
        )
    return Child(name, process, ours)


def child_environment() -> dict[str, str]:
    """Ours, with two settings that libraries read when a process starts; what the user set wins.

    Huge pages for the C library's large blocks: a CPU worker reads every weight each step, and
    with 4 KiB pages a third of its time is address translation. And a short spin of OpenMP threads
    at a barrier: longer than the gaps between parallel operations, much shorter than a time slice.
    By default they spin for as long as the thread they wait for is kept from running by another
    process, which makes a step a hundred times slower. See docs/measured.md for both.
    """
    environment = {"GOMP_SPINCOUNT": "20000", **os.environ}
    given = environment.get(_TUNABLES, "")
    if _HUGE_PAGES_KEY not in given:
        ours = f"{_HUGE_PAGES_KEY}=1"
        environment[_TUNABLES] = f"{given}:{ours}" if given else ours
    return environment


def end_now(pids: Sequence[int], *, addresses: Addresses) -> Callable[[], None]:
    """What a dying process does last: end these children, remove the sockets' directory."""

    def cleanup() -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it was first
                os.kill(pid, signal.SIGKILL)
        addresses.remove()

    return cleanup
