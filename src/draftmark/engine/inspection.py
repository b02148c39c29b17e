"""What would run? The start up to the memory budget, with a worker that allocates nothing.

The same questions, `resolve()` and budget as a real start; only the weights are described instead
of loaded, so the answer is the one that a start would come to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import zmq

from draftmark.cache.budget import Budget
from draftmark.core.declared import Declared, Resolved
from draftmark.core.resolve import check_built, count_workers, resolve, to_dict
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
from draftmark.engine.stage_costs import find_stages
from draftmark.engine.startup import find_budget, load_message, settle
from draftmark.engine.workers import Workers


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
        workers = Workers(context, count=1, arguments=worker, addresses=addresses)
        try:
            return _ask(workers, declared, source, addresses=addresses, progress=progress)
        finally:
            workers.end()
    finally:
        addresses.remove()
        context.term()


def _ask(
    workers: Workers,
    declared: Declared,
    source: Source,
    *,
    addresses: Addresses,
    progress: Callable[[str], None],
) -> Inspection:
    """One worker answers for all: what each of them would hold, and what a layer costs."""
    config = dict[str, object](to_dict(declared.config))
    init = WorkerInit(model_dir=str(source.directory), config=config)
    [hello] = workers.ask(init, WorkerHello, while_waiting=_nothing)
    addresses.remove()  # both sides are connected: names are of no more use
    resolved = resolve(declared, hello.model, hello.device)
    resolved = find_stages(workers, resolved, hello, say=progress, beat=_nothing)
    described = [
        answer
        for number in range(count_workers(declared.config))
        for answer in workers.ask(
            DescribeWeights(load_message(resolved, worker=number)),
            WeightsLoaded,
            while_waiting=_nothing,
        )
    ]
    hellos = [_hello_of(number, hello) for number in range(len(described))]
    budget = find_budget(declared, resolved, hellos=hellos, loaded=described)
    return Inspection(
        source=source,
        model=hello.model,
        device=hello.device,
        resolved=settle(resolved, budget),
        budget=budget,
    )


def _hello_of(number: int, hello: WorkerHello) -> WorkerHello:
    """What worker `number` would say: on GPUs it has one of its own."""
    if hello.device.kind == "cpu":
        return hello
    device = msgspec.structs.replace(hello.device, domain=f"{hello.device.domain} {number}")
    return msgspec.structs.replace(hello, device=device)


def _nothing() -> None:
    """A worker's death is noticed by `Workers.ask` itself."""
