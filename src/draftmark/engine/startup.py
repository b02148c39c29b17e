"""The start conversation, from the engine's side: resolve, budget, and the ready record.

`core.start` shows the conversation. Everything that a start settles is in the record, which goes
to the log as one line of JSON, to `/v1/engine/config` and to Python as `Engine.ready`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from draftmark.cache.budget import Budget, BudgetInputs, compute_budget
from draftmark.cache.spec import PAGE_TOKENS, decode_specs
from draftmark.core.declared import Declared, Resolved
from draftmark.core.recording import RecordingHeader
from draftmark.core.resolve import resolve, to_dict
from draftmark.core.start import (
    AllocatePools,
    CostPoint,
    DeviceFacts,
    LoadWeights,
    ModelFacts,
    ToWorkerStart,
    WeightsLoaded,
    WorkerHello,
    WorkerInit,
    WorkerReady,
)
from draftmark.engine.channel import EngineInit
from draftmark.engine.provenance import find_provenance
from draftmark.engine.worker import Answer, Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a start settled. `record` is the ready record; `header` begins a recording."""

    resolved: Resolved
    budget: Budget
    cost_table: list[CostPoint]
    record: dict[str, object]
    header: RecordingHeader


def start_worker(
    worker: Worker,
    init: EngineInit,
    *,
    say: Callable[[str], None],
    beat: Callable[[], None],
) -> Started:
    """Lead the conversation to its end. Raises `ConfigError` (also of the budget), `ModelError`, or
    `EngineFailure` when the worker dies. `say` is told each phase, `beat` is called while waiting.
    """

    def ask(question: ToWorkerStart, expect: type[Answer]) -> Answer:
        return worker.ask(question, expect=expect, while_waiting=beat)

    began = time.monotonic()
    say("starting the worker")
    code = find_provenance()  # git answers while the worker imports
    config = dict[str, object](to_dict(init.declared.config))
    worker_init = WorkerInit(model_dir=init.model_dir, config=config)
    hello = ask(worker_init, WorkerHello)
    hello_s = time.monotonic() - began
    resolved = resolve(init.declared, hello.model, hello.device)
    say(f"loading {hello.model.checkpoint_bytes / 1e9:.2f} GB of weights")
    load = load_message(resolved)
    loaded = ask(load, WeightsLoaded)
    budget = compute_budget(budget_inputs(init.declared, resolved, hello=hello, loaded=loaded))
    resolved = settle(resolved, budget)
    say(f"preparing a KV pool of {budget.pool_tokens} tokens")
    pools = _pools(budget)
    ready = ask(pools, WorkerReady)
    seconds = {
        "hello": hello_s,
        **loaded.seconds,
        **ready.seconds,
        "worker": time.monotonic() - began,
    }
    about = {"commit": code.commit, "dirty_diff_sha": code.dirty_diff_sha}
    record = {
        "start_id": init.start_id,
        "model_dir": init.model_dir,
        "model_rule": init.model_rule,
        **_about_model(hello.model, hello.device),
        **_about_memory(loaded, budget),
        **_about_run(resolved),
        **about,
        "backends": loaded.backends,
        "seconds": {phase: round(value, 3) for phase, value in seconds.items()},
        "resolved": resolved.record(),
    }
    return Started(
        resolved=resolved,
        budget=budget,
        cost_table=ready.cost_table,
        record=record,
        header=RecordingHeader(init=worker_init, load=load, pools=pools, about=about),
    )


def _pools(budget: Budget) -> AllocatePools:
    return AllocatePools(
        num_pages=budget.num_pages,
        page_tokens=PAGE_TOKENS,
        num_slots=budget.num_slots,
        max_context=budget.max_context,
    )


def load_message(resolved: Resolved) -> LoadWeights:
    """How the worker is to load the weights."""
    return LoadWeights(
        dtype=resolved.dtype,
        kv_dtype=resolved.kv_dtype,
        threads=resolved.threads,
        max_context=resolved.max_context,
        max_running=resolved.max_running,
        prefill_tokens=resolved.prefill_tokens,
    )


def budget_inputs(
    declared: Declared, resolved: Resolved, *, hello: WorkerHello, loaded: WeightsLoaded
) -> BudgetInputs:
    """What the memory budget is computed from."""
    device = hello.device
    return BudgetInputs(
        memory_fraction=resolved.memory_fraction,
        base_bytes=device.free_bytes if device.kind == "cpu" else device.total_bytes,
        free_bytes=loaded.free_bytes,
        weight_bytes=loaded.weight_bytes,
        workspace_bytes=loaded.workspace_bytes,
        fixed_bytes_per_slot=loaded.fixed_bytes_per_slot,
        specs=tuple(decode_specs(loaded.cache_specs)),
        model_context=resolved.max_context,
        max_running=resolved.max_running,
        # What nobody asked for may shrink to what the pool holds.
        max_context=declared.config.model.max_context,
        state_slots=resolved.state_slots,
        kv_pool_tokens=resolved.config.memory.kv_pool_tokens,
    )


def settle(resolved: Resolved, budget: Budget) -> Resolved:
    """Enter what only the budget could know."""
    if resolved.config.memory.kv_pool_tokens is None:
        note = "what memory_fraction leaves"
        resolved = resolved.with_value("kv_pool_tokens", budget.pool_tokens, note=note)
    if budget.max_context != resolved.max_context:
        note = f"what the KV pool holds; the model's own limit is {resolved.max_context}"
        resolved = resolved.with_value("max_context", budget.max_context, note=note)
    return resolved


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


def _about_memory(loaded: WeightsLoaded, budget: Budget) -> dict[str, object]:
    seconds = loaded.seconds.get("weights", 0.0)
    return {
        "weights_gb": round(loaded.weight_bytes / 1e9, 4),
        "load_gb_per_s": round(loaded.weight_bytes / 1e9 / seconds, 3) if seconds else None,
        "pool_tokens": budget.pool_tokens,
        "num_pages": budget.num_pages,
        "state_slots": budget.num_slots - 1,
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
    }
