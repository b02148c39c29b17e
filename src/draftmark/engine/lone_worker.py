"""One worker, started to be asked and then ended: for commands that want answers, not a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import zmq

from draftmark.core.declared import Declared, Resolved
from draftmark.core.resolve import check_built, resolve, to_dict
from draftmark.core.start import WorkerHello, WorkerInit
from draftmark.engine.launch import Addresses
from draftmark.engine.source import Source, resolve_source
from draftmark.engine.workers import Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class LoneWorker:
    """`workers` holds the one that said `hello`; `resolved` is what a start would come to."""

    workers: Workers
    source: Source
    hello: WorkerHello
    resolved: Resolved


@contextmanager
def lone_worker(
    declared: Declared, *, progress: Callable[[str], None], worker: Sequence[str]
) -> Iterator[LoneWorker]:
    """Find the model, start a worker and hear what it says of model and device. Raises what a start
    would raise: `ConfigError`, `ModelError`."""
    check_built(declared.config)
    source = resolve_source(declared.config.model.model, progress=progress)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    addresses = Addresses.create()
    try:
        progress("asking a worker")
        workers = Workers(context, count=1, arguments=worker, addresses=addresses)
        try:
            config = dict[str, object](to_dict(declared.config))
            init = WorkerInit(model_dir=str(source.directory), config=config)
            [hello] = workers.ask(init, WorkerHello, while_waiting=nothing)
            addresses.remove()  # both sides are connected: names are of no more use
            resolved = resolve(declared, hello.model, hello.device)
            yield LoneWorker(workers=workers, source=source, hello=hello, resolved=resolved)
        finally:
            workers.end()
    finally:
        addresses.remove()
        context.term()


def nothing() -> None:
    """A worker's death is noticed by `Workers.ask` itself."""
