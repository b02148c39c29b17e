"""The start conversation, from the engine's side: resolve, budget, and the ready record.

`core.start` shows the conversation. Everything that a start settles is in the record, which goes
to the log as one line of JSON, to `/v1/engine/config` and to Python as `Engine.ready`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from draftmark.cache.budget import Budget, BudgetInputs, common_budget
from draftmark.cache.spec import PAGE_TOKENS, decode_specs
from draftmark.core.declared import Declared, Resolved
from draftmark.core.errors import ConfigError
from draftmark.core.options import options_by_name
from draftmark.core.recording import RecordingHeader
from draftmark.core.resolve import resolve, to_dict
from draftmark.core.start import (
    AllocatePools,
    BusyReport,
    CostPoint,
    DeviceFacts,
    EndWarmUp,
    Join,
    Joined,
    LoadWeights,
    ModelFacts,
    PrepareWarmUp,
    ToWorkerStart,
    WeightsLoaded,
    WorkerHello,
    WorkerInit,
    WorkerReady,
)
from draftmark.core.step import StepPlan
from draftmark.core.synthetic import synthetic_mark
from draftmark.core.topology import Topology
from draftmark.core.warmup import WarmUpLimits, measure_costs
from draftmark.engine.channel import EngineInit
from draftmark.engine.provenance import find_provenance
from draftmark.engine.stage_costs import find_stages
from draftmark.engine.worker import Answer
from draftmark.engine.workers import Workers

logger = logging.getLogger(__name__)

_WARM_UP_EACH_S = 1.0
# Sections of the configuration that are the server's alone.
_OWN_SECTIONS = ("server",)
# A lane's own time limit is the last resort: the watchdog, which knows more, comes first.
_LANE_GRACE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a start settled. `record` is the ready record; `header` begins a recording."""

    resolved: Resolved
    budget: Budget
    cost_table: list[CostPoint]
    record: dict[str, object]
    header: RecordingHeader


def start_workers(
    workers: Workers,
    init: EngineInit,
    *,
    say: Callable[[str], None],
    beat: Callable[[], None],
) -> Started:
    """Lead the conversation to its end. Raises `ConfigError` (also of the budget), `ModelError`, or
    `EngineFailure` when a worker dies. `say` is told each phase, `beat` is called while waiting.
    """

    def ask(
        question: ToWorkerStart | Sequence[ToWorkerStart], expect: type[Answer]
    ) -> list[Answer]:
        return workers.ask(question, expect, while_waiting=beat)

    began = time.monotonic()
    count = len(workers.all)
    say("starting the worker" if count == 1 else f"starting {count} workers")
    code = find_provenance()  # git answers while the workers import
    inits = _inits(init, workers)
    hellos = ask(inits, WorkerHello)
    hello, hello_s = hellos[0], time.monotonic() - began
    check_same(hellos)
    check_configured(hellos, init.declared)
    resolved = resolve(init.declared, hello.model, _device_of_all(hellos))
    resolved = find_stages(workers, resolved, hello, say=say, beat=beat)
    rates = resolved.config.speculation.synthetic_acceptance
    if rates:
        logger.warning("%s", synthetic_mark(rates))
    topology = topology_of(resolved)
    workers.place(topology)
    join = Join(
        topology=topology,
        store_host=inits[0].store_host,
        store_port=hello.store_port,
        timeout_s=resolved.config.debug.step_timeout_s + _LANE_GRACE_S,
    )
    joined = ask(join, Joined)
    check_joined(joined, topology)
    say(f"loading {hello.model.checkpoint_bytes / 1e9:.2f} GB of weights")
    loads = [load_message(resolved, worker=number) for number in range(count)]
    loaded = ask(loads, WeightsLoaded)
    budget = find_budget(init.declared, resolved, hellos=hellos, loaded=loaded)
    resolved = settle(resolved, budget)
    say(f"preparing a KV pool of {budget.pool_tokens} tokens")
    pools = _pools(budget)
    ready = ask(pools, WorkerReady)
    warm_up_began = time.monotonic()
    cost_table = warm_up(workers, resolved, budget, beat=beat)
    seconds = {
        "hello": hello_s,
        "join": max(answer.seconds for answer in joined),
        **_slowest([answer.seconds for answer in loaded]),
        **_slowest([answer.seconds for answer in ready]),
        "warmup": time.monotonic() - warm_up_began,
        "worker": time.monotonic() - began,
    }
    backends = loaded[0].backends
    logger.info("backends: %s", ", ".join(f"{op} {name}" for op, name in sorted(backends.items())))
    about = {"commit": code.commit, "dirty_diff_sha": code.dirty_diff_sha}
    record = {
        "start_id": init.start_id,
        "model_dir": init.model_dir,
        "model_rule": init.model_rule,
        **_about_model(hello.model, hello.device),
        **_about_memory(loaded, budget),
        **_about_run(resolved),
        **about,
        "topology": msgspec.to_builtins(topology),
        "backends": backends,
        "seconds": {phase: round(value, 3) for phase, value in seconds.items()},
        "resolved": resolved.record(),
    }
    return Started(
        resolved=resolved,
        budget=budget,
        cost_table=cost_table,
        record=record,
        header=RecordingHeader(init=inits[0], load=loads[0], pools=pools, about=about),
    )


def _inits(init: EngineInit, workers: Workers) -> list[WorkerInit]:
    count, place = len(workers.all), init.place
    first = WorkerInit(
        model_dir=init.model_dir,
        config=dict[str, object](to_dict(init.declared.config)),
        num_workers=count,
        num_local=count,
    )
    if place is not None:
        first = msgspec.structs.replace(
            first,
            local_index=place.local_rank,
            num_local=place.local_world_size,
            store_host=place.master_addr,
            store_port=place.master_port,
            is_store_kept=place.has_agent_store,
            published=workers.published(place),
        )
    others = [
        msgspec.structs.replace(first, worker=number, local_index=number, published={})
        for number in range(1, count)
    ]
    return [first, *others]


def check_same(hellos: Sequence[WorkerHello]) -> None:
    """All workers must see one model with one code. Raises `ConfigError` naming what differs."""
    first = hellos[0]
    for number, hello in enumerate(hellos):
        seen = {"device": hello.device.kind, **msgspec.structs.asdict(hello.model)} | hello.versions
        wanted = {"device": first.device.kind, **msgspec.structs.asdict(first.model)}
        for what, value in (wanted | first.versions).items():
            if seen.get(what) != value:
                raise ConfigError(
                    f"worker {number} has {what} {seen.get(what)}, worker 0 has {value}: every "
                    "machine needs the same draftmark, torch and model"
                )


def check_configured(hellos: Sequence[WorkerHello], declared: Declared) -> None:
    """Workers that others started must have been given the same flags as the server. Raises
    `ConfigError` naming the first that differs."""
    wanted = to_dict(declared.config)
    for number, hello in enumerate(hellos):
        for section, fields in (hello.config or {}).items():
            for name, value in fields.items():
                if section not in _OWN_SECTIONS and value != wanted[section].get(name):
                    raise ConfigError(
                        f"rank {number} was started with {options_by_name()[name].flag} {value}, "
                        f"rank 0 with {wanted[section].get(name)}",
                        param=name,
                    )


def _device_of_all(hellos: Sequence[WorkerHello]) -> DeviceFacts:
    """The first one's device; memory is shared if it is by all."""
    devices = [hello.device for hello in hellos]
    together = len({device.domain for device in devices}) == 1
    shares = together and all(device.shares_memory for device in devices)
    return msgspec.structs.replace(devices[0], shares_memory=shares)


def topology_of(resolved: Resolved) -> Topology:
    parallel = resolved.config.parallel
    assert parallel.cohorts and parallel.lanes and parallel.stages_per_worker
    return Topology(
        stages=parallel.stages,
        tp=parallel.tp,
        cohorts=parallel.cohorts,
        lanes=parallel.lanes,
        stages_per_worker=parallel.stages_per_worker,
    )


def check_joined(joined: Sequence[Joined], topology: Topology) -> None:
    """Every worker must have made its communicators in the one order."""
    for worker, answer in enumerate(joined):
        expected = [name for name, members in topology.communicators() if worker in members]
        if answer.communicators != expected:
            raise AssertionError(
                f"worker {worker} made communicators {answer.communicators}, not {expected}"
            )


def _slowest(seconds: Sequence[dict[str, float]]) -> dict[str, float]:
    """Of each phase, that of the worker it took longest."""
    return {phase: max(one.get(phase, 0.0) for one in seconds) for phase in seconds[0]}


def _pools(budget: Budget) -> AllocatePools:
    return AllocatePools(
        num_pages=budget.num_pages,
        page_tokens=PAGE_TOKENS,
        num_slots=budget.num_slots,
        max_context=budget.max_context,
        num_snapshots=budget.num_snapshots or 0,
    )


def load_message(resolved: Resolved, *, worker: int) -> LoadWeights:
    """How a worker is to load its weights."""
    return LoadWeights(
        dtype=resolved.dtype,
        kv_dtype=resolved.kv_dtype,
        threads=resolved.threads,
        max_context=resolved.max_context,
        max_running=resolved.max_running,
        prefill_tokens=resolved.prefill_tokens,
        topology=topology_of(resolved),
        worker=worker,
        draft=resolved.config.speculation.draft,
        max_drafts=resolved.draft_tokens,
        synthetic_acceptance=resolved.config.speculation.synthetic_acceptance,
    )


def find_budget(
    declared: Declared,
    resolved: Resolved,
    *,
    hellos: Sequence[WorkerHello],
    loaded: Sequence[WeightsLoaded],
) -> Budget:
    """Of all memories together; workers of one memory share it. Raises `BudgetError`."""
    domains: dict[str, list[int]] = {}
    for number, hello in enumerate(hellos):
        domains.setdefault(hello.device.domain, []).append(number)
    return common_budget(
        [
            budget_inputs(
                declared,
                resolved,
                device=hellos[members[0]].device,
                loaded=[loaded[number] for number in members],
            )
            for members in domains.values()
        ]
    )


def budget_inputs(
    declared: Declared,
    resolved: Resolved,
    *,
    device: DeviceFacts,
    loaded: Sequence[WeightsLoaded],
) -> BudgetInputs:
    """What the budget of one memory is computed from; `loaded` are the workers that share it."""
    return BudgetInputs(
        memory_fraction=resolved.memory_fraction,
        base_bytes=device.free_bytes if device.kind == "cpu" else device.total_bytes,
        free_bytes=min(one.free_bytes for one in loaded),
        weight_bytes=sum(one.weight_bytes for one in loaded),
        workspace_bytes=sum(one.workspace_bytes for one in loaded),
        fixed_bytes_per_slot=sum(one.fixed_bytes_per_slot for one in loaded),
        specs=tuple(spec for one in loaded for spec in decode_specs(one.cache_specs)),
        model_context=resolved.max_context,
        max_running=resolved.max_running,
        # What nobody asked for may shrink to what the pool holds.
        max_context=declared.config.model.max_context,
        state_slots=resolved.state_slots,
        kv_pool_tokens=resolved.config.memory.kv_pool_tokens,
        snapshots=resolved.config.memory.snapshots,
    )


def settle(resolved: Resolved, budget: Budget) -> Resolved:
    """Enter what only the budget could know."""
    if resolved.config.memory.kv_pool_tokens is None:
        note = "what memory_fraction leaves"
        resolved = resolved.with_value("kv_pool_tokens", budget.pool_tokens, note=note)
    if budget.num_snapshots is not None and resolved.config.memory.snapshots is None:
        note = "a share of what memory_fraction leaves"
        resolved = resolved.with_value("snapshots", budget.num_snapshots, note=note)
    if budget.max_context != resolved.max_context:
        note = f"what the KV pool holds; the model's own limit is {resolved.max_context}"
        resolved = resolved.with_value("max_context", budget.max_context, note=note)
    return resolved


def draft_counts(resolved: Resolved) -> tuple[int, ...]:
    """The numbers of drafts a row that steps may make, beside none."""
    most = resolved.draft_tokens
    return tuple(range(1, most + 1)) if resolved.adapts_drafts else (most,) * (most > 0)


def warm_up(
    workers: Workers, resolved: Resolved, budget: Budget, *, beat: Callable[[], None]
) -> list[CostPoint]:
    """Time a few steps. What a turn takes is what its slowest stage takes."""
    limits = WarmUpLimits(
        num_pages=budget.num_pages,
        page_tokens=PAGE_TOKENS,
        max_context=budget.max_context,
        max_running=resolved.max_running,
        prefill_tokens=resolved.prefill_tokens,
        cohorts=workers.topology.cohorts,
        drafts=draft_counts(resolved),
    )

    def run(plan: StepPlan) -> float:
        return workers.run(plan, while_waiting=beat)

    prepare = PrepareWarmUp(limits.pages_to_zero)
    workers.ask(prepare, BusyReport, while_waiting=beat)
    points = measure_costs(run, limits, each_s=_WARM_UP_EACH_S)
    workers.ask(EndWarmUp(), BusyReport, while_waiting=beat)
    return points


def _about_model(model: ModelFacts, device: DeviceFacts) -> dict[str, object]:
    return {
        "model_type": model.model_type,
        "architecture": model.architecture,
        "num_layers": model.num_layers,
        "num_parameters": model.num_parameters,
        "vocab_size": model.vocab_size,
        "eos_ids": list(model.eos_ids),
        "device": device.name,
    }


def _about_memory(loaded: Sequence[WeightsLoaded], budget: Budget) -> dict[str, object]:
    """Of all workers together."""
    seconds = max(one.seconds.get("weights", 0.0) for one in loaded)
    gigabytes = sum(one.weight_bytes for one in loaded) / 1e9
    return {
        "weights_gb": round(gigabytes, 4),
        "load_gb_per_s": round(gigabytes / seconds, 3) if seconds else None,
        "pool_tokens": budget.pool_tokens,
        "num_pages": budget.num_pages,
        "state_slots": budget.num_slots - 1,
        "snapshots": budget.num_snapshots,
        "max_context": budget.max_context,
        "budget": budget.explain(),
    }


def _about_run(resolved: Resolved) -> dict[str, object]:
    dtype = resolved.sources["model.dtype"]
    return {
        "max_running": resolved.max_running,
        "prefill_tokens": resolved.prefill_tokens,
        "dtype": resolved.dtype,
        "dtype_source": str(dtype),
        "synthetic_acceptance": list(resolved.config.speculation.synthetic_acceptance),
        "draft": resolved.config.speculation.draft,
        "draft_tokens": resolved.draft_tokens,
        "adapts_drafts": resolved.adapts_drafts,
    }
