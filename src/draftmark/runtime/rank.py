"""One worker of the engine in this process: the start conversation, then steps.

`runtime.worker` puts it behind a socket; tests and `rerun` call it directly. It holds one tensor
rank of one or more neighbouring stages.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import msgspec
import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from draftmark.cache.spec import PAGE_TOKENS, encode_specs
from draftmark.core.resolve import from_dict
from draftmark.core.start import (
    AllocatePools,
    BusyReport,
    Join,
    Joined,
    LayersMeasured,
    LoadWeights,
    MeasureLayers,
    PrepareWarmUp,
    WeightsLoaded,
    WorkerHello,
    WorkerInit,
    WorkerReady,
)
from draftmark.core.step import StepPlan, StepResult
from draftmark.core.topology import LaneName, Topology
from draftmark.kernels import backends
from draftmark.models import checkpoint
from draftmark.models.config import Description, describe
from draftmark.models.stage import Stage, build
from draftmark.parallel.collectives import TensorGroup
from draftmark.parallel.communicators import (
    Communicators,
    address_towards,
    find_store,
    open_store,
)
from draftmark.parallel.lanes import Wire
from draftmark.parallel.mesh import Mesh
from draftmark.runtime import ngram
from draftmark.runtime.debug_sync import LANE, DebugSync
from draftmark.runtime.device import (
    PROBED_DTYPES,
    describe_device,
    dtype_of,
    find_device,
    find_versions,
    usable_threads,
)
from draftmark.runtime.drafting import Drafter, Seat
from draftmark.runtime.injection import InjectedFaults
from draftmark.runtime.layer_costs import measure_layers
from draftmark.runtime.memory import RunLimits, free_bytes, workspace_bytes
from draftmark.runtime.mtp import MTPDrafter
from draftmark.runtime.pipeline import (
    NoteStage,
    Placing,
    WorkerPending,
    WorkerRun,
    make_worker_run,
    note_nothing,
)
from draftmark.runtime.relay import RowLayout
from draftmark.runtime.sample_state import sample_bytes
from draftmark.runtime.sampler import Override
from draftmark.runtime.slots import slot_bytes

logger = logging.getLogger(__name__)

_DRAFTERS: dict[str, Callable[[Seat], Drafter] | None] = {
    "none": None,
    "mtp": MTPDrafter,
    "ngram": ngram.NgramDrafter,
}
_SAY_EVERY_S = 2.0
_STORE_TIMEOUT = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnView:
    """What a worker knows for itself that somebody else started, maybe on another machine."""

    model_dir: str
    config: dict[str, dict[str, object]]
    local_index: int
    num_local: int
    store: TCPStore

    def applied_to(self, init: WorkerInit) -> WorkerInit:
        return msgspec.structs.replace(
            init,
            model_dir=self.model_dir,
            local_index=self.local_index,
            num_local=self.num_local,
        )


def _store_of(init: WorkerInit) -> TCPStore:
    if init.is_store_kept:
        return find_store(init.store_host, init.store_port, timeout=_STORE_TIMEOUT)
    return open_store(init.store_host, init.store_port, timeout=_STORE_TIMEOUT)


class Rank:
    """Questions come in the order of `core.start`; `describe` and `measure` may come instead of
    join and load. Then plans.

    Errors of the user (`core.errors`) say in one line what is wrong; anything else is a crash.
    """

    def __init__(
        self,
        *,
        import_s: float = 0.0,
        note: NoteStage = note_nothing,
        own: OwnView | None = None,
    ) -> None:
        """`import_s` is what it took to get here, for the record; `note` is told all along what
        each stage is at; `own` is there where the engine did not start this process."""
        self._own = own
        self._seconds = {"import": import_s}
        self._note = note
        self._worker = 0
        self._model_dir = Path()
        self._faults = InjectedFaults()
        self._sync = DebugSync()
        self._device = torch.device("cpu")
        self._description: Description | None = None
        self._store: TCPStore | None = None if own is None else own.store
        self._communicators: Communicators | None = None
        self._load: LoadWeights | None = None
        self._stages: list[Stage] = []
        self._run: WorkerRun | None = None

    def hello(self, init: WorkerInit) -> WorkerHello:
        """Read the model's configuration and look at the device; open the store, if it is ours."""
        began = time.perf_counter()
        config = from_dict(init.config)
        self._worker = init.worker
        self._faults = InjectedFaults.of(config.debug.inject, worker=init.worker)
        if self._own is not None:
            init = self._own.applied_to(init)
        self._model_dir = Path(init.model_dir)
        self._description = describe(self._model_dir)
        self._seconds["config"] = time.perf_counter() - began
        self._device = find_device(
            config.parallel.device, index=init.local_index, wanted_count=init.num_local
        )
        self._sync = DebugSync(config.debug.debug_sync, device=self._device)
        facts = describe_device(
            self._device,
            threads=config.parallel.threads or usable_threads(),
            probed=PROBED_DTYPES if config.model.dtype is None else (),
        )
        self._seconds["probe"] = time.perf_counter() - began - self._seconds["config"]
        if init.num_workers > 1 and init.worker == 0:
            self._store = _store_of(init)
            for key, value in init.published.items():
                self._store.set(key, value)
        return WorkerHello(
            self._description.facts,
            facts,
            versions=find_versions(self._model_dir),
            store_port=0 if self._store is None else self._store.port,
            config=None if self._own is None else self._own.config,
        )

    def measure(self, question: MeasureLayers) -> LayersMeasured:
        """Time one layer and the ends of the model with weights of no meaning."""
        assert self._description is not None, "hello comes first"
        load = question.load
        torch.set_num_threads(load.threads)
        costs = measure_layers(
            self._description,
            load,
            device=self._device,
            backends=backends.choose(self._device, dtype=dtype_of(load.dtype)),
        )
        return LayersMeasured(costs)

    def join(self, join: Join) -> Joined:
        """Make the communicators. Raises `RuntimeError` when a peer does not come in time."""
        began = time.perf_counter()
        if join.topology.num_workers == 1:
            return Joined([], 0.0)
        timeout = timedelta(seconds=join.timeout_s)
        store = self._store or find_store(join.store_host, join.store_port, timeout=timeout)
        self._communicators = Communicators(
            join.topology,
            worker=self._worker,
            store=store,
            host=address_towards(join.store_host),
            timeout=timeout,
            device=self._device,
        )
        return Joined(self._communicators.names, time.perf_counter() - began)

    def describe(self, load: LoadWeights) -> WeightsLoaded:
        """What `load` would answer; nothing is read or allocated, so that all is still free."""
        stages = self._build(load, device=torch.device("meta"), group=None)
        planned = sum(stage.planned_bytes() for stage in stages)
        return self._loaded(stages, load, weight_bytes=planned, seconds={})

    def load(self, load: LoadWeights) -> WeightsLoaded:
        """Stream the weights in. Raises `CheckpointError`."""
        assert self._description is not None, "hello comes first"
        began = time.perf_counter()
        torch.set_num_threads(load.threads)
        group = None if self._communicators is None else self._communicators.group
        with torch.inference_mode():
            self._stages = self._build(load, device=self._device, group=group)
            built = time.perf_counter()
            for stage in self._stages:
                checkpoint.load(
                    stage, self._model_dir, description=self._description, progress=_Progress()
                )
            loaded = time.perf_counter()
            for stage in self._stages:
                stage.finish()
        self._load = load
        seconds = {
            "build": built - began,
            "weights": loaded - built,
            "pack": time.perf_counter() - loaded,
        }
        weight_bytes = sum(stage.weight_bytes() for stage in self._stages)
        return self._loaded(self._stages, load, weight_bytes=weight_bytes, seconds=seconds)

    def allocate(self, pools: AllocatePools) -> WorkerReady:
        """Make pools and lanes. Raises `BudgetError`."""
        load = self._load
        assert load is not None, "load comes first"
        if pools.page_tokens != PAGE_TOKENS:
            raise AssertionError(f"pages of {pools.page_tokens} tokens, ours have {PAGE_TOKENS}")
        began = time.perf_counter()
        self._run = make_worker_run(
            self._stages,
            placing=Placing(
                topology=load.topology,
                worker=self._worker,
                connect=self._connect,
                note=self._note,
                checks=self._device.type == "cpu" or LANE in self._sync.kinds,
                sync=self._sync,
                make_drafter=_DRAFTERS[load.draft],
                synthetic_acceptance=load.synthetic_acceptance,
            ),
            limits=RunLimits(
                num_pages=pools.num_pages,
                num_slots=pools.num_slots,
                max_context=pools.max_context,
                max_running=load.max_running,
                prefill_tokens=load.prefill_tokens,
                cohorts=load.topology.cohorts,
                num_snapshots=pools.num_snapshots,
                max_drafts=load.max_drafts,
            ),
            kv_dtype=dtype_of(load.kv_dtype),
            device=self._device,
        )
        seconds = {"pools": time.perf_counter() - began}
        return WorkerReady(seconds=seconds, pool_bytes=self._run.pool_bytes)

    def prepare_warm_up(self, question: PrepareWarmUp) -> BusyReport:
        self._ready.zero_pages(question.num_pages)
        return self.report_busy()

    def end_warm_up(self) -> BusyReport:
        """All results of the warm-up have been read: nothing is in flight."""
        if self._sync.kinds:
            logger.warning("%s", self._sync.describe())
        self._ready.reset()
        return self.report_busy()

    def report_busy(self) -> BusyReport:
        return BusyReport(self._ready.busy_us)

    def launch(self, plan: StepPlan, *, override: Override | None = None) -> WorkerPending:
        """Enqueue a step; `result()` of what comes back waits for it."""
        self._faults.strike(plan.step, communicators=self._communicators, stages=self._stages)
        return self._ready.launch(plan, override=override)

    def execute(self, plan: StepPlan) -> StepResult | None:
        return self.launch(plan).result()

    def close(self) -> None:
        if self._run is not None:
            self._run.close()
        if self._communicators is not None:
            self._communicators.close()

    @property
    def _ready(self) -> WorkerRun:
        assert self._run is not None, "allocate comes first"
        return self._run

    def _connect(self, name: LaneName) -> Wire:
        assert self._communicators is not None, f"{name}: join comes first"
        return self._faults.delay(self._communicators.wire(name))

    def _build(
        self, load: LoadWeights, *, device: torch.device, group: TensorGroup | None
    ) -> list[Stage]:
        assert self._description is not None, "hello comes first"
        dtype = dtype_of(load.dtype)
        topology = load.topology
        chosen = backends.choose(self._device, dtype=dtype)
        return [
            build(
                self._description,
                dtype=dtype,
                device=device,
                max_context=load.max_context,
                backends=chosen,
                layers=topology.layers_of(number),
                with_mtp=load.draft == "mtp",
                mesh=_mesh(topology, number, worker=load.worker),
                group=group,
            )
            for number in topology.stages_of(load.worker)
        ]

    def _loaded(
        self,
        stages: list[Stage],
        load: LoadWeights,
        *,
        weight_bytes: int,
        seconds: dict[str, float],
    ) -> WeightsLoaded:
        kv_dtype = dtype_of(load.kv_dtype)
        return WeightsLoaded(
            cache_specs=encode_specs(
                spec
                for stage in stages
                for spec in stage.cache_specs(kv_dtype, max_drafts=load.max_drafts)
            ),
            weight_bytes=weight_bytes,
            free_bytes=free_bytes(self._device),
            fixed_bytes_per_slot=sum(_fixed_bytes(stage, load) for stage in stages),
            workspace_bytes=sum(
                workspace_bytes(
                    stage,
                    max_context=load.max_context,
                    max_running=load.max_running,
                    prefill_tokens=load.prefill_tokens,
                    cohorts=load.topology.cohorts,
                    lane_ends=(not stage.embeds) + (stage.head is None),
                    max_drafts=load.max_drafts,
                )
                + _lookup_bytes(stage, load)
                for stage in stages
            ),
            seconds={**self._seconds, **seconds},
            backends=stages[0].placement.backends.report(),
        )


def _fixed_bytes(stage: Stage, load: LoadWeights) -> int:
    """Device bytes that a slot costs on `stage` beside its cache."""
    needed = slot_bytes(max_context=load.max_context, layout=RowLayout(load.max_drafts))
    if stage.head is not None:
        needed += sample_bytes(vocab_size=stage.config.vocab_size)
    if _looks_up(stage, load):
        needed += ngram.history_bytes(max_context=load.max_context)
    return needed


def _lookup_bytes(stage: Stage, load: LoadWeights) -> int:
    """Of a step's search for drafts."""
    return ngram.workspace_bytes(max_context=load.max_context) if _looks_up(stage, load) else 0


def _looks_up(stage: Stage, load: LoadWeights) -> bool:
    """Whether drafts are looked up there."""
    return load.draft == "ngram" and stage.head is not None


def _mesh(topology: Topology, stage: int, *, worker: int) -> Mesh:
    return Mesh(
        tp_rank=topology.tp_rank_of(worker),
        tp_size=topology.tp,
        stage=stage,
        num_stages=topology.num_stages,
    )


class _Progress:
    """Says how far loading is, now and then."""

    def __init__(self) -> None:
        self._said_at = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._said_at >= _SAY_EVERY_S:
            self._said_at = now
            logger.info("loaded %.2f of %.2f GB", done / 1e9, total / 1e9)
