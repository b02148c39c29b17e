"""Measures what a start would look up: the costs of a layer and of a model's ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import zmq

from draftmark.core.declared import Declared, Resolved
from draftmark.core.resolve import check_built, resolve, to_dict
from draftmark.core.start import LayerCosts, ModelFacts, WorkerHello, WorkerInit
from draftmark.engine.launch import WORKER_MODULE, Addresses
from draftmark.engine.source import resolve_source
from draftmark.engine.stage_costs import measure, table_path, write_table
from draftmark.engine.workers import Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTable:
    """The table, where it was written, and what it was measured for."""

    costs: list[LayerCosts]
    path: Path
    model: ModelFacts
    resolved: Resolved


def tune_stages(
    declared: Declared,
    *,
    progress: Callable[[str], None],
    worker: Sequence[str] = WORKER_MODULE,
) -> StageTable:
    """Measure with one worker and write the table. Raises what a start would raise."""
    check_built(declared.config)
    source = resolve_source(declared.config.model.model, progress=progress)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    addresses = Addresses.create()
    try:
        workers = Workers(context, count=1, arguments=worker, addresses=addresses)
        try:
            config = dict[str, object](to_dict(declared.config))
            init = WorkerInit(model_dir=str(source.directory), config=config)
            [hello] = workers.ask(init, WorkerHello, while_waiting=_nothing)
            resolved = resolve(declared, hello.model, hello.device)
            progress("measuring what a layer costs")
            costs = measure(workers, resolved, hello, beat=_nothing)
        finally:
            workers.end()
    finally:
        addresses.remove()
        context.term()
    path = table_path(resolved, hello)
    write_table(path, costs)
    return StageTable(costs=costs, path=path, model=hello.model, resolved=resolved)


def _nothing() -> None:
    """A worker's death is noticed by `Workers.ask` itself."""
