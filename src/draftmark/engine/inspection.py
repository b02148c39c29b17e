"""What would run? The start up to the memory budget, with a worker that allocates nothing.

The same questions, `resolve()` and budget as a real start; only the weights are described instead
of loaded, so the answer is the one that a start would come to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import zmq

from draftmark.cache.budget import Budget, compute_budget
from draftmark.core.declared import Declared, Resolved
from draftmark.core.resolve import check_built, resolve, to_dict
from draftmark.core.start import (
    DescribeWeights,
    DeviceFacts,
    ModelFacts,
    WeightsLoaded,
    WorkerHello,
    WorkerInit,
)
from draftmark.engine.launch import WORKER_MODULE, Addresses
from draftmark.engine.source import Source, resolve_source
from draftmark.engine.startup import budget_inputs, load_message, settle
from draftmark.engine.worker import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Everything a start would settle before it reads a weight."""

    source: Source
    model: ModelFacts
    device: DeviceFacts
    resolved: Resolved
    budget: Budget


def inspect(
    declared: Declared,
    *,
    progress: Callable[[str], None],
    worker: Sequence[str] = WORKER_MODULE,
) -> Inspection:
    """Raises what a start would raise: `ConfigError` (of the budget too), `ModelError`."""
    check_built(declared.config)
    source = resolve_source(declared.config.model.model, progress=progress)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    addresses = Addresses.create()
    try:
        progress("asking a worker")
        child = Worker(context, rank=0, arguments=worker, addresses=addresses)
        try:
            return _ask(child, declared, source=source, addresses=addresses)
        finally:
            child.end()
    finally:
        addresses.remove()
        context.term()


def _ask(worker: Worker, declared: Declared, *, source: Source, addresses: Addresses) -> Inspection:
    config = dict[str, object](to_dict(declared.config))
    hello = worker.ask(
        WorkerInit(model_dir=str(source.directory), config=config),
        expect=WorkerHello,
        while_waiting=_nothing,
    )
    addresses.remove()  # both sides are connected: names are of no more use
    resolved = resolve(declared, hello.model, hello.device)
    described = worker.ask(
        DescribeWeights(load_message(resolved)), expect=WeightsLoaded, while_waiting=_nothing
    )
    budget = compute_budget(budget_inputs(declared, resolved, hello=hello, loaded=described))
    return Inspection(
        source=source,
        model=hello.model,
        device=hello.device,
        resolved=settle(resolved, budget),
        budget=budget,
    )


def _nothing() -> None:
    """A worker's death is noticed by `Worker.ask` itself."""
