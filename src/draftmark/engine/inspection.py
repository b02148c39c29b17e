"""What would run? The start up to the memory budget, with a worker that allocates nothing.

The same questions, `resolve()` and budget as a real start; only the weights are described instead
of loaded, so the answer is the one that a start would come to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from draftmark.cache.budget import Budget
from draftmark.cache.spec import decode_specs, slot_bytes
from draftmark.core.declared import Declared, Resolved
from draftmark.core.resolve import count_workers
from draftmark.core.start import (
    DescribeWeights,
    DeviceFacts,
    LoadWeights,
    ModelFacts,
    WeightsLoaded,
    WorkerHello,
)
from draftmark.engine.launch import WORKER_MODULE
from draftmark.engine.lone_worker import lone_worker, nothing
from draftmark.engine.source import Source
from draftmark.engine.stage_costs import find_stages
from draftmark.engine.startup import find_budget, load_message, settle
from draftmark.engine.workers import Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Everything a start would settle before it reads a weight. `state_bytes` are those of a
    request's recurrent state, `plain_state_bytes` what they would be without drafts: 0 where no
    layer is recurrent."""

    source: Source
    model: ModelFacts
    device: DeviceFacts
    resolved: Resolved
    budget: Budget
    state_bytes: int
    plain_state_bytes: int


def inspect(
    declared: Declared,
    *,
    progress: Callable[[str], None],
    worker: Sequence[str] = WORKER_MODULE,
) -> Inspection:
    """Raises what a start would raise: `ConfigError` (of the budget too), `ModelError`. One worker
    answers for all: what each of them would hold, and what a layer costs."""
    with lone_worker(declared, progress=progress, worker=worker) as asked:
        workers, hello = asked.workers, asked.hello
        resolved = find_stages(workers, asked.resolved, hello, say=progress, beat=nothing)
        loads = [
            load_message(resolved, worker=number)
            for number in range(count_workers(declared.config))
        ]
        described = _describe(workers, loads)
        state_bytes = plain_state_bytes = _state_bytes(described)
        if resolved.draft_tokens and state_bytes:
            plain = [msgspec.structs.replace(load, draft="none", max_drafts=0) for load in loads]
            plain_state_bytes = _state_bytes(_describe(workers, plain))
    hellos = [_hello_of(number, hello) for number in range(len(described))]
    described = _with_weights(hellos, described)
    budget = find_budget(declared, resolved, hellos=hellos, loaded=described)
    return Inspection(
        source=asked.source,
        model=hello.model,
        device=hello.device,
        resolved=settle(resolved, budget),
        budget=budget,
        state_bytes=state_bytes,
        plain_state_bytes=plain_state_bytes,
    )


def _describe(workers: Workers, loads: Sequence[LoadWeights]) -> list[WeightsLoaded]:
    """What each of these workers would hold, all said by the one that there is."""
    return [
        answer
        for load in loads
        for answer in workers.ask(DescribeWeights(load), WeightsLoaded, while_waiting=nothing)
    ]


def _state_bytes(described: Sequence[WeightsLoaded]) -> int:
    return sum(slot_bytes(decode_specs(one.cache_specs)) for one in described)


def _with_weights(
    hellos: Sequence[WorkerHello], described: Sequence[WeightsLoaded]
) -> list[WeightsLoaded]:
    """What each would say once the weights of all that share its memory were there."""
    taken: dict[str, int] = {}
    for hello, one in zip(hellos, described, strict=True):
        domain = hello.device.domain
        taken[domain] = taken.get(domain, 0) + one.weight_bytes
    return [
        msgspec.structs.replace(one, free_bytes=one.free_bytes - taken[hello.device.domain])
        for hello, one in zip(hellos, described, strict=True)
    ]


def _hello_of(number: int, hello: WorkerHello) -> WorkerHello:
    """What worker `number` would say: on GPUs it has one of its own."""
    if hello.device.kind == "cpu":
        return hello
    device = msgspec.structs.replace(hello.device, domain=f"{hello.device.domain} {number}")
    return msgspec.structs.replace(hello, device=device)
