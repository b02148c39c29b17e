"""The start conversation between the engine and a worker, before the first plan.

    engine                         worker
    ── WorkerInit ──►              reads the config, probes the device
    ◄── WorkerHello ──             model and device facts
    (resolves the configuration)
    ── LoadWeights ──►             streams weights
    ◄── WeightsLoaded ──           cache specs, free bytes
    (computes the memory budget)
    ── AllocatePools ──►           pools, warm-up, cost table
    ◄── WorkerReady ──
    ── StepPlan ... Stop ──►

Either side may be answered by `WorkerFailed`, which ends the start with its message.
"""

from __future__ import annotations

import msgspec


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the checkpoint says about itself, translated once by its model file."""

    model_type: str
    architecture: str
    num_layers: int
    vocab_size: int
    max_context: int
    dtype: str
    eos_ids: tuple[int, ...]
    num_parameters: int
    checkpoint_bytes: int


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The device as found. `probe_ms` maps dtype to the time of a short decode-shaped product."""

    kind: str
    name: str
    total_bytes: int
    free_bytes: int
    threads: int
    probe_ms: dict[str, float] = {}


class WorkerInit(msgspec.Struct, frozen=True, tag="init"):
    """`config` is the declared tree as `core.resolve.to_dict` gives it."""

    model_dir: str
    config: dict[str, object]
    rank: int = 0
    world_size: int = 1


class WorkerHello(msgspec.Struct, frozen=True, tag="hello"):
    model: ModelFacts
    device: DeviceFacts


class LoadWeights(msgspec.Struct, frozen=True, tag="load"):
    """`dtype` and `kv_dtype` are torch names without the prefix, e.g. bfloat16."""

    dtype: str
    kv_dtype: str
    threads: int
    max_context: int
    max_running: int
    prefill_tokens: int


class DescribeWeights(msgspec.Struct, frozen=True, tag="describe"):
    """What would `load` answer? Nothing is read or allocated (`draftmark check`)."""

    load: LoadWeights


class WeightsLoaded(msgspec.Struct, frozen=True, tag="loaded"):
    """`cache_specs` is what `cache.spec.encode_specs` gives. Bytes are this rank's.

    `fixed_bytes_per_slot` is device state a slot costs beside its pages (sampling tables, page
    table); `workspace_bytes` is the peak of activations and logits for the largest step.
    """

    cache_specs: msgspec.Raw
    weight_bytes: int
    free_bytes: int
    fixed_bytes_per_slot: int
    workspace_bytes: int
    seconds: dict[str, float]
    backends: dict[str, str] = {}


class AllocatePools(msgspec.Struct, frozen=True, tag="allocate"):
    """`num_pages` and `num_slots` include the reserved page 0 and slot 0 (dump)."""

    num_pages: int
    page_tokens: int
    num_slots: int
    max_context: int


class CostPoint(msgspec.Struct, frozen=True, array_like=True):
    """Measured time of one step of this shape."""

    verify_rows: int
    prefill_tokens: int
    context_tokens: int
    ms: float


class WorkerReady(msgspec.Struct, frozen=True, tag="worker_ready"):
    seconds: dict[str, float]
    cost_table: list[CostPoint]
    pool_bytes: int


class WorkerFailed(msgspec.Struct, frozen=True, tag="failed"):
    """`kind` is the name of a `core.errors` class when the fault is the user's, else `crash`."""

    kind: str
    message: str
    param: str | None = None
    traceback: str = ""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    pass


ToWorkerStart = WorkerInit | LoadWeights | DescribeWeights | AllocatePools | Stop
FromWorkerStart = WorkerHello | WeightsLoaded | WorkerReady | WorkerFailed


def is_start_message(data: bytes) -> bool:
    """Whether an encoded message is of the start conversation: those are maps in msgpack, plans
    and results are arrays."""
    return 0x80 <= data[0] <= 0x8F or data[0] >= 0xDE
