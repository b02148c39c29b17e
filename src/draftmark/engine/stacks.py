"""Where everybody is, in one text: the ends of each lane side by side, then every stack.

Written to a file when a step is overdue or a worker is lost, and given on demand (`draftmark
stacks`). A worker writes its stacks to a file that the engine reads; one that is stopped or dead
cannot, but its trace says what it was at.
"""

from __future__ import annotations

import faulthandler
import logging
import tempfile
import time
from pathlib import Path

import psutil

from draftmark.engine.whereabouts import Whereabouts, lane_table
from draftmark.engine.worker import Worker
from draftmark.engine.workers import Workers

logger = logging.getLogger(__name__)

_WAIT_S = 1.0
_POLL_S = 0.02


def find_whereabouts(workers: Workers) -> list[Whereabouts]:
    """Of every stage, in the order of workers."""
    topology = workers.topology
    return [
        Whereabouts(
            worker=worker.number,
            stage=stage,
            tp_rank=topology.tp_rank_of(worker.number),
            trace=worker.trace.read(index),
            state=_state(worker),
        )
        for worker in workers.all
        for index, stage in enumerate(topology.stages_of(worker.number))
    ]


def _state(worker: Worker) -> str:
    try:
        return str(psutil.Process(worker.child.pid).status())
    except psutil.NoSuchProcess:  # which is the answer
        return "gone"


def collect_stacks(workers: Workers, *, reason: str) -> str:
    """The whole report. Waits for the workers' stacks, a second at most."""
    now_s = time.monotonic()
    places = find_whereabouts(workers)
    topology = workers.topology
    parts = [reason, "", "Stages", *(p.describe(topology, now_s=now_s) for p in places)]
    parts += ["", "Lanes, source | target", *lane_table(places, topology, now_s=now_s)]
    parts += ["", "Stacks of the engine process", _own_stacks()]
    for worker, text in zip(workers.all, _stacks_of(workers.all), strict=True):
        parts += [f"Stacks of {worker.child.name} (pid {worker.child.pid})", text]
    return "\n".join(parts) + "\n"


def write_stacks(workers: Workers, *, reason: str, start_id: str) -> Path:
    """`collect_stacks` in a file of its own; its path is logged."""
    text = collect_stacks(workers, reason=reason)
    with tempfile.NamedTemporaryFile(
        "w", prefix=f"draftmark-stacks-{start_id[:8]}-", suffix=".txt", delete=False
    ) as file:
        file.write(text)
    logger.error("what every rank was at, and its stacks: %s", file.name)
    return Path(file.name)


def _own_stacks() -> str:
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
    return texts[worker.number] or f"none came: the process is {_state(worker)}\n"
