"""Where everybody is, in one text: the ends of each lane together, then every stack.

Written to a file when a step is overdue or a worker is lost, and given on demand (`draftmark
stacks`, SIGUSR1). A worker writes its stacks to a file that the engine reads; one that is stopped
or dead cannot, but its trace says what it was at.
"""

from __future__ import annotations

import faulthandler
import logging
import tempfile
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from draftmark.core.messages import StacksReport
from draftmark.engine.whereabouts import lane_table
from draftmark.engine.worker import Worker
from draftmark.engine.workers import Workers

logger = logging.getLogger(__name__)

_WAIT_S = 1.0
_POLL_S = 0.02


class StackReports:
    """Reports about `workers`. `write` waits for the workers' stacks, a second at most; `begin` and
    `begin_file` do so in a thread, so that a loop can go on."""

    def __init__(self, workers: Workers, *, start_id: str) -> None:
        self._workers = workers
        self._start_id = start_id
        self._threads: list[threading.Thread] = []
        self._finished: SimpleQueue[StacksReport] = SimpleQueue()
        # Workers write to one file each: two reports at once would tear their stacks apart.
        self._lock = threading.Lock()

    def begin(self, token: int) -> None:
        """Have a report made that `finished` gives."""

        def work() -> None:
            self._finished.put(StacksReport(token, self._collect("asked for while running")))

        self._start(work)

    def begin_file(self, reason: str) -> None:
        """Have a report written to a file. May be called from a signal handler."""
        self._start(lambda: self.write(reason))

    @property
    def is_busy(self) -> bool:
        """Whether one is being made, or waits for `finished`."""
        return not self._finished.empty() or any(thread.is_alive() for thread in self._threads)

    def finished(self) -> list[StacksReport]:
        """Those that were begun and are complete, each once."""
        return [self._finished.get() for _ in range(self._finished.qsize())]

    def write(self, reason: str) -> None:
        """A report in a file of its own; its path is logged, or why there is none."""
        text = self._collect(reason)
        try:
            with tempfile.NamedTemporaryFile(
                "w", prefix=f"draftmark-stacks-{self._start_id[:8]}-", suffix=".txt", delete=False
            ) as file:
                file.write(text)
        except OSError as error:
            logger.error("stacks cannot be written: %s", error)
        else:
            logger.error("what every rank is at, and its stacks: %s", file.name)

    def close(self) -> None:
        """Wait for those that were begun."""
        for thread in self._threads:
            thread.join()

    def _start(self, work: Callable[[], object]) -> None:
        thread = threading.Thread(target=work, name="stacks", daemon=True)
        self._threads = [old for old in self._threads if old.is_alive()] + [thread]
        thread.start()

    def _collect(self, reason: str) -> str:
        with self._lock:
            return collect_stacks(self._workers, reason=reason)


def collect_stacks(workers: Workers, *, reason: str) -> str:
    """The whole report. Waits for the workers' stacks, a second at most."""
    now_s = time.monotonic()
    topology, places = workers.topology, workers.whereabouts()
    parts = [reason, "", "Stages", *(p.describe(topology, now_s=now_s) for p in places)]
    parts += ["", "Lanes", *lane_table(places, topology, now_s=now_s)]
    parts += ["", "Stacks of the engine process", own_stacks()]
    for worker, text in zip(workers.all, _stacks_of(workers.all), strict=True):
        parts += [f"Stacks of {worker.child.name} (pid {worker.child.pid})", text]
    return "\n".join(parts) + "\n"


def own_stacks() -> str:
    """Of all threads of this process."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file=file, all_threads=True)
        file.seek(0)
        return file.read()


def _stacks_of(workers: list[Worker]) -> list[str]:
    """What each writes when asked; a sentence where it does not."""
    asked = {worker.number for worker in workers if worker.child.poll() is None}
    for worker in workers:
        worker.stacks.take()
        if worker.number in asked:
            worker.child.ask_for_stacks()
    texts = dict.fromkeys(asked, "")
    deadline = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline:
        time.sleep(_POLL_S)
        news = {w.number: w.stacks.take() for w in workers if w.number in asked}
        texts = {number: text + news[number] for number, text in texts.items()}
        if all(texts.values()) and not any(news.values()):
            break
    return [_text(worker, texts) for worker in workers]


def _text(worker: Worker, texts: dict[int, str]) -> str:
    if worker.number not in texts:
        return f"none: {worker.child.describe_end()}\n"
    return texts[worker.number] or f"none came: the process is {worker.state}\n"
