"""One rank of the engine in this process: the start conversation, then steps.

`runtime.worker` puts it behind a socket; tests and `rerun` call it directly.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

import msgspec
import torch

from draftmark.cache.spec import PAGE_TOKENS, encode_specs
from draftmark.core.resolve import from_dict
from draftmark.core.start import (
    AllocatePools,
    LoadWeights,
    WeightsLoaded,
    WorkerHello,
    WorkerInit,
    WorkerReady,
)
from draftmark.core.step import StepPlan, StepResult
from draftmark.kernels import backends
from draftmark.models import checkpoint
from draftmark.models.config import Description, describe
from draftmark.models.stage import Stage, build
from draftmark.runtime.device import (
    PROBED_DTYPES,
    describe_device,
    dtype_of,
    find_device,
    usable_threads,
)
from draftmark.runtime.memory import RunLimits, free_bytes, workspace_bytes
from draftmark.runtime.results import StepPending
from draftmark.runtime.sampler import Override
from draftmark.runtime.slots import slot_bytes
from draftmark.runtime.stage_run import StageRun, make_stage_run
from draftmark.runtime.warmup import measure_costs

logger = logging.getLogger(__name__)

WARM_UP_S = 2.0
_SAY_EVERY_S = 2.0


class Rank:
    """Questions come in the order hello, load (or describe), allocate; then plans.

    Errors of the user (`core.errors`) say in one line what is wrong; anything else is a crash.
    """

    def __init__(self, *, import_s: float = 0.0) -> None:
        """`import_s` is what it took to get here, for the record."""
        self._seconds = {"import": import_s}
        self._model_dir = Path()
        self._device = torch.device("cpu")
        self._description: Description | None = None
        self._load: LoadWeights | None = None
        self._stage: Stage | None = None
        self._run: StageRun | None = None

    def hello(self, init: WorkerInit) -> WorkerHello:
        """Read the model's configuration and look at the device."""
        if init.world_size != 1:
            raise AssertionError(f"{init.world_size} ranks, only one is built")
        began = time.perf_counter()
        config = from_dict(init.config)
        self._model_dir = Path(init.model_dir)
        self._description = describe(self._model_dir)
        self._seconds["config"] = time.perf_counter() - began
        self._device = find_device(config.parallel.device)
        facts = describe_device(
            self._device,
            threads=config.parallel.threads or usable_threads(),
            probed=PROBED_DTYPES if config.model.dtype is None else (),
        )
        self._seconds["probe"] = time.perf_counter() - began - self._seconds["config"]
        return WorkerHello(self._description.facts, facts)

    def describe(self, load: LoadWeights) -> WeightsLoaded:
        """What `load` would answer; nothing is read or allocated."""
        stage = self._build(load, device=torch.device("meta"))
        planned = stage.planned_bytes()
        loaded = self._loaded(stage, load, weight_bytes=planned, seconds={})
        return msgspec.structs.replace(loaded, free_bytes=max(0, loaded.free_bytes - planned))

    def load(self, load: LoadWeights) -> WeightsLoaded:
        """Stream the weights in. Raises `CheckpointError`."""
        assert self._description is not None, "hello comes first"
        began = time.perf_counter()
        torch.set_num_threads(load.threads)
        with torch.inference_mode():
            self._stage = stage = self._build(load, device=self._device)
            built = time.perf_counter()
            checkpoint.load(
                stage, self._model_dir, description=self._description, progress=_Progress()
            )
            loaded = time.perf_counter()
            stage.finish()
        self._load = load
        seconds = {
            "build": built - began,
            "weights": loaded - built,
            "pack": time.perf_counter() - loaded,
        }
        return self._loaded(stage, load, weight_bytes=stage.weight_bytes(), seconds=seconds)

    def allocate(self, pools: AllocatePools, *, warm_up_s: float = WARM_UP_S) -> WorkerReady:
        """Make the pools and time a few steps. Raises `BudgetError`."""
        assert self._stage is not None and self._load is not None, "load comes first"
        if pools.page_tokens != PAGE_TOKENS:
            raise AssertionError(f"pages of {pools.page_tokens} tokens, ours have {PAGE_TOKENS}")
        began = time.perf_counter()
        limits = RunLimits(
            num_pages=pools.num_pages,
            num_slots=pools.num_slots,
            max_context=pools.max_context,
            max_running=self._load.max_running,
            prefill_tokens=self._load.prefill_tokens,
        )
        kv_dtype = dtype_of(self._load.kv_dtype)
        self._run = make_stage_run(
            self._stage, limits=limits, kv_dtype=kv_dtype, device=self._device
        )
        allocated = time.perf_counter()
        points = measure_costs(self._run, limits, budget_s=warm_up_s) if warm_up_s else []
        seconds = {"pools": allocated - began, "warmup": time.perf_counter() - allocated}
        return WorkerReady(seconds=seconds, cost_table=points, pool_bytes=self._run.pool_bytes)

    def launch(self, plan: StepPlan, *, override: Override | None = None) -> StepPending:
        """Enqueue a step; `result()` of what comes back waits for it."""
        assert self._run is not None, "allocate comes first"
        return self._run.launch(plan, override=override)

    def execute(self, plan: StepPlan) -> StepResult:
        return self.launch(plan).result()

    def _build(self, load: LoadWeights, *, device: torch.device) -> Stage:
        assert self._description is not None, "hello comes first"
        dtype = dtype_of(load.dtype)
        return build(
            self._description,
            dtype=dtype,
            device=device,
            max_context=load.max_context,
            backends=backends.choose(self._device, dtype=dtype),
        )

    def _loaded(
        self, stage: Stage, load: LoadWeights, *, weight_bytes: int, seconds: dict[str, float]
    ) -> WeightsLoaded:
        vocab_size = stage.config.vocab_size
        return WeightsLoaded(
            cache_specs=encode_specs(stage.cache_specs(dtype_of(load.kv_dtype))),
            weight_bytes=weight_bytes,
            free_bytes=free_bytes(self._device),
            fixed_bytes_per_slot=slot_bytes(max_context=load.max_context, vocab_size=vocab_size),
            workspace_bytes=workspace_bytes(
                stage,
                vocab_size=vocab_size,
                max_context=load.max_context,
                max_running=load.max_running,
                prefill_tokens=load.prefill_tokens,
            ),
            seconds={**self._seconds, **seconds},
            backends=stage.placement.backends.report(),
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
