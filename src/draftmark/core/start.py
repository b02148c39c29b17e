"""The start conversation between the engine and its workers, before the first plan.

    engine                         every worker
    ── WorkerInit ──►              reads the config, probes the device; worker 0 opens the store
    ◄── WorkerHello ──             model and device facts, versions
    (resolves the configuration)
    ── MeasureLayers ──►           worker 0 alone, where the layer split is to be found
    ◄── LayersMeasured ──
    ── Join ──►                    makes the communicators, all in one order
    ◄── Joined ──
    ── LoadWeights ──►             streams the weights of its stages
    ◄── WeightsLoaded ──           cache specs, free bytes
    (computes the memory budget)
    ── AllocatePools ──►           pools, lanes
    ◄── WorkerReady ──
    ── PrepareWarmUp, plans, EndWarmUp ──►   the cost table
    ── StepPlan ... Stop ──►       with a ReportBusy now and then

Either side may be answered by `WorkerFailed`, which ends the start with its message.
"""

from __future__ import annotations

import msgspec

from draftmark.core.topology import Topology


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the checkpoint says about itself, translated once by its model file. `layer_kinds` has a
    number for each layer: those of one kind cost the same. Empty: all are of one kind. `has_mtp`:
    it can draft by itself."""

    model_type: str
    architecture: str
    num_layers: int
    vocab_size: int
    max_context: int
    dtype: str
    eos_ids: tuple[int, ...]
    num_parameters: int
    checkpoint_bytes: int
    layer_kinds: tuple[int, ...] = ()
    has_mtp: bool = False


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The device as found. `probe_ms` maps dtype to the time of a short decode-shaped product.
    Workers with one `domain` share its memory; `shares_memory` says that all of them may map one
    another's, as peer lanes on a CPU do."""

    kind: str
    name: str
    domain: str
    total_bytes: int
    free_bytes: int
    threads: int
    probe_ms: dict[str, float] = {}
    shares_memory: bool = False


class WorkerInit(msgspec.Struct, frozen=True, tag="init"):
    """`config` is the declared tree as `core.resolve.to_dict` gives it. `local_index` counts the
    workers of one machine. Worker 0 of several opens the store at `store_host` (port 0: a free
    one), unless torchrun keeps it, and enters what is to be `published` there.
    """

    model_dir: str
    config: dict[str, object]
    worker: int = 0
    num_workers: int = 1
    local_index: int = 0
    num_local: int = 1
    store_host: str = "127.0.0.1"
    store_port: int = 0
    is_store_kept: bool = False
    published: dict[str, str] = {}


class WorkerHello(msgspec.Struct, frozen=True, tag="hello"):
    """`versions` must be the same on all workers. `store_port` is 0 where no store was opened.
    `config` is what a worker was started with that was not started by the engine."""

    model: ModelFacts
    device: DeviceFacts
    versions: dict[str, str] = {}
    store_port: int = 0
    config: dict[str, dict[str, object]] | None = None


class LoadWeights(msgspec.Struct, frozen=True, tag="load"):
    """`dtype` and `kv_dtype` are torch names without the prefix, e.g. bfloat16. `worker` says which
    stages of `topology` are meant. At most `max_drafts` tokens a row are drafted, by `draft`;
    where there are `synthetic_acceptance` rates, coins accept them."""

    dtype: str
    kv_dtype: str
    threads: int
    max_context: int
    max_running: int
    prefill_tokens: int
    topology: Topology
    worker: int = 0
    draft: str = "none"
    max_drafts: int = 0
    synthetic_acceptance: tuple[float, ...] = ()


class LayerCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Measured milliseconds at one shape: of a layer of each kind, of the embedding, and of the
    final norm, head and sampling together."""

    verify_rows: int
    context_tokens: int
    layer_ms: list[float]
    embedding_ms: float
    head_ms: float


class MeasureLayers(msgspec.Struct, frozen=True, tag="measure_layers"):
    """How long does a layer of this model take, how long its ends? Weights may be anything."""

    load: LoadWeights


class LayersMeasured(msgspec.Struct, frozen=True, tag="layers_measured"):
    costs: list[LayerCosts]


class Join(msgspec.Struct, frozen=True, tag="join"):
    """Make the communicators of this worker. No wait in any of them is longer than `timeout_s`."""

    topology: Topology
    store_host: str
    store_port: int
    timeout_s: float


class Joined(msgspec.Struct, frozen=True, tag="joined"):
    """The communicators this worker is in, in the order in which it made them."""

    communicators: list[str]
    seconds: float


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
    """`num_pages` and `num_slots` include the reserved page 0 and slot 0 (dump); `num_snapshots`
    are all usable, and 0 where no layer is recurrent."""

    num_pages: int
    page_tokens: int
    num_slots: int
    max_context: int
    num_snapshots: int = 0


class CostPoint(msgspec.Struct, frozen=True, array_like=True):
    """Measured time of one step of this shape; each verify row runs and makes so many `drafts`."""

    verify_rows: int
    prefill_tokens: int
    context_tokens: int
    ms: float
    drafts: int = 0


class WorkerReady(msgspec.Struct, frozen=True, tag="worker_ready"):
    seconds: dict[str, float]
    pool_bytes: int


class PrepareWarmUp(msgspec.Struct, frozen=True, tag="prepare_warm_up"):
    """Make the first `num_pages` pages hold zeros, so that a plan may claim them as cached."""

    num_pages: int


class EndWarmUp(msgspec.Struct, frozen=True, tag="end_warm_up"):
    """Forget every slot and step."""


class ReportBusy(msgspec.Struct, frozen=True, tag="report_busy"):
    """How long has each stage computed? May be asked at any time after `WorkerReady`."""


class BusyReport(msgspec.Struct, frozen=True, tag="busy_report"):
    """Microseconds that each stage of the worker computed since it was started, waits left out;
    also the answer to `PrepareWarmUp` and `EndWarmUp`."""

    busy_us: list[int]


class WorkerFailed(msgspec.Struct, frozen=True, tag="failed"):
    """`kind` is the name of a `core.errors` class when the fault is the user's, else `crash`."""

    kind: str
    message: str
    param: str | None = None
    traceback: str = ""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    pass


ToWorkerStart = (
    WorkerInit
    | MeasureLayers
    | Join
    | LoadWeights
    | DescribeWeights
    | AllocatePools
    | PrepareWarmUp
    | EndWarmUp
    | ReportBusy
    | Stop
)
FromWorkerStart = (
    WorkerHello | LayersMeasured | Joined | WeightsLoaded | WorkerReady | BusyReport | WorkerFailed
)


def is_start_message(data: bytes) -> bool:
    """Whether an encoded message is of the start conversation: those are maps in msgpack, plans
    and results are arrays."""
    return 0x80 <= data[0] <= 0x8F or data[0] >= 0xDE
