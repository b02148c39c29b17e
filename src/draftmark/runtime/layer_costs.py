"""How long layers take and how long the ends of the model: what the layer split is found from.

For each kind of layer two small models run ordinary steps, one of a single layer and one of
several: their difference is that of layers alone. The ends are timed by themselves. All weights are
one number: times do not depend on them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from draftmark.cache.spec import PAGE_TOKENS
from draftmark.core.start import LayerCosts, LoadWeights
from draftmark.core.step import StepPlan
from draftmark.core.warmup import VERIFY_ROWS, WarmUp, WarmUpLimits
from draftmark.kernels import sample as op
from draftmark.kernels.backends import Backends
from draftmark.layers.decoder import LayerConfig
from draftmark.models.config import Description
from draftmark.models.stage import build
from draftmark.parallel.mesh import Mesh
from draftmark.runtime.device import dtype_of
from draftmark.runtime.memory import RunLimits
from draftmark.runtime.pipeline import make_lone_run
from draftmark.runtime.sample_state import make_sample_tables

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
    layer_ms: dict[int, list[float]] = {rows: [] for rows in sizes}
    for kind in description.config.kinds:
        one, many = (
            _Model((kind,) * count, description, load, limits, device=device, backends=backends)
            for count in (1, _MANY_LAYERS)
        )
        for rows in sizes:
            more = max(many.step_ms(rows) - one.step_ms(rows), 0.0)
            layer_ms[rows].append(round(more / (_MANY_LAYERS - 1), 4))
    return [
        LayerCosts(
            verify_rows=rows,
            context_tokens=limits.context,
            layer_ms=layer_ms[rows],
            embedding_ms=round(one.embedding_ms(rows), 4),
            head_ms=round(one.head_ms(rows), 4),
        )
        for rows in sizes
    ]


class _Model:
    """A model of `layers` and the description's ends, and steps on it."""

    def __init__(
        self,
        layers: tuple[LayerConfig, ...],
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
            replace(description, config=replace(description.config, layers=layers)),
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
        """What the stage computes; what a step costs beside that, every stage pays."""
        [point] = self._warm_up.verify(rows, time.perf_counter() + _SECONDS_EACH)
        return point.ms

    def embedding_ms(self, rows: int) -> float:
        embedding = self._stage.embedding
        assert embedding is not None
        ids = torch.zeros(rows, dtype=torch.int64, device=self._device)
        return self._best_ms(lambda: embedding(ids))

    def head_ms(self, rows: int) -> float:
        """Final norm, head and a greedy sample."""
        stage, config = self._stage, self._stage.config
        norm = stage.norm
        assert norm is not None
        hidden = torch.ones(
            (rows, config.hidden_size), dtype=stage.placement.dtype, device=self._device
        )
        slots = torch.arange(rows, device=self._device)
        tables = make_sample_tables(
            num_slots=rows, vocab_size=config.vocab_size, device=self._device
        )
        flags = (op.RowFlag.PLAIN,) * rows

        def run() -> Tensor:
            logits = stage.logits(norm(hidden)[0])
            return op.sample(
                logits, slots=slots, position=slots, tables=tables, flags=flags, backend="torch"
            )

        return self._best_ms(run)

    @torch.inference_mode()
    def _best_ms(self, call: Callable[[], Tensor]) -> float:
        times = []
        for _ in range(_REPEATS):
            began = time.perf_counter()
            call()
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
            times.append(time.perf_counter() - began)
        return 1e3 * min(times)

    def _step(self, plan: StepPlan) -> float:
        [before] = self._run.busy_us
        self._run.launch(plan).result()
        [after] = self._run.busy_us
        return (after - before) / 1e3


@dataclass(frozen=True, slots=True)
class _Echo:
    """Peers that all say what this rank says: the shapes of a tensor group, without one."""

    size: int
    rank: int = 0

    def sum(self, x: Tensor) -> Tensor:
        return x

    def gather_columns(self, x: Tensor, *, widths: Sequence[int]) -> Tensor:
        return torch.cat([x[:, :1].expand(len(x), width) for width in widths], dim=1)
