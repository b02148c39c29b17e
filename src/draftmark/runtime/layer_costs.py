"""How long a layer takes and how long the ends of the model: what the layer split is found from.

Two small models of the same shapes are timed through ordinary steps, one of a single layer and one
of several; their difference is that of layers alone. Weights are whatever the memory held, made
finite: times do not depend on them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from draftmark.cache.spec import PAGE_TOKENS
from draftmark.core.start import LayerCosts, LoadWeights
from draftmark.core.step import StepPlan
from draftmark.core.warmup import VERIFY_ROWS, WarmUp, WarmUpLimits
from draftmark.kernels.backends import Backends
from draftmark.models.config import Description
from draftmark.models.stage import build
from draftmark.parallel.mesh import Mesh
from draftmark.runtime.device import dtype_of
from draftmark.runtime.memory import RunLimits
from draftmark.runtime.pipeline import make_lone_run

# Layers of the larger model: enough that their weights do not stay in a cache.
_MANY_LAYERS = 9
_SECONDS_EACH = 1.0
_REPEATS = 20


def measure_layers(
    description: Description, load: LoadWeights, *, device: torch.device, backends: Backends
) -> list[LayerCosts]:
    """At each number of decoding rows that `load` allows, up to `VERIFY_ROWS`."""
    sizes = sorted({min(size, load.max_running) for size in VERIFY_ROWS})
    limits = WarmUpLimits(
        num_pages=1 + 64,
        page_tokens=PAGE_TOKENS,
        max_context=min(load.max_context, 32 * PAGE_TOKENS),
        max_running=sizes[-1],
        prefill_tokens=min(load.prefill_tokens, sizes[-1]),
    )
    one = _Model(1, description, load, limits, device=device, backends=backends)
    many = _Model(_MANY_LAYERS, description, load, limits, device=device, backends=backends)
    costs = []
    for rows in sizes:
        base_ms, many_ms = one.step_ms(rows), many.step_ms(rows)
        layer_ms = max(many_ms - base_ms, 0.0) / (_MANY_LAYERS - 1)
        embedding_ms = one.embedding_ms(rows)
        costs.append(
            LayerCosts(
                verify_rows=rows,
                context_tokens=limits.context,
                layer_ms=round(layer_ms, 4),
                embedding_ms=round(embedding_ms, 4),
                head_ms=round(max(base_ms - layer_ms - embedding_ms, 0.0), 4),
            )
        )
    return costs


class _Model:
    """A model of `num_layers` layers of the description's shapes, and steps on it."""

    def __init__(
        self,
        num_layers: int,
        description: Description,
        load: LoadWeights,
        limits: WarmUpLimits,
        *,
        device: torch.device,
        backends: Backends,
    ) -> None:
        tp = load.topology.tp
        self._device = device
        self._stage = build(
            replace(description, config=replace(description.config, num_layers=num_layers)),
            dtype=dtype_of(load.dtype),
            device=device,
            max_context=limits.max_context,
            backends=backends,
            mesh=Mesh(tp_size=tp),
            group=_Echo(tp),
        )
        with torch.inference_mode():
            for weight in self._stage.parameters():
                weight.data.fill_(0.01)
            self._stage.finish()
        self._run = make_lone_run(
            self._stage,
            limits=RunLimits(
                num_pages=limits.num_pages,
                num_slots=limits.max_running + 1,
                max_context=limits.max_context,
                max_running=limits.max_running,
                prefill_tokens=limits.prefill_tokens,
            ),
            kv_dtype=dtype_of(load.kv_dtype),
            device=device,
        )
        self._run.zero_pages(limits.pages_to_zero)
        self._warm_up = WarmUp(self._step, limits)

    def step_ms(self, rows: int) -> float:
        return self._warm_up.verify(rows, time.perf_counter() + _SECONDS_EACH).ms

    @torch.inference_mode()
    def embedding_ms(self, rows: int) -> float:
        embedding = self._stage.embedding
        assert embedding is not None
        ids = torch.zeros(rows, dtype=torch.int64, device=self._device)
        times = []
        for _ in range(_REPEATS):
            began = time.perf_counter()
            embedding(ids)
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
            times.append(time.perf_counter() - began)
        return 1e3 * min(times)

    def _step(self, plan: StepPlan) -> float:
        began = time.perf_counter()
        self._run.launch(plan).result()
        return 1e3 * (time.perf_counter() - began)


@dataclass(frozen=True, slots=True)
class _Echo:
    """Peers that all say what this rank says: the shapes of a tensor group, without one."""

    size: int
    rank: int = 0

    def sum(self, x: Tensor) -> Tensor:
        return x

    def gather_columns(self, x: Tensor, *, widths: Sequence[int]) -> Tensor:
        return torch.cat([x[:, :1].expand(len(x), width) for width in widths], dim=1)
