"""Where the layers are cut: as asked for, else by a table of measured costs that is kept on disk.

The table depends on shapes, number format, device and tensor ranks, not on weights; it is measured
by worker 0 the first time, and by `draftmark tune stages`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from draftmark.core.declared import Resolved
from draftmark.core.stage_split import choose_stages
from draftmark.core.start import (
    LayerCosts,
    LayersMeasured,
    LoadWeights,
    MeasureLayers,
    ModelFacts,
    WorkerHello,
)
from draftmark.core.topology import Topology
from draftmark.engine.workers import Workers

logger = logging.getLogger(__name__)


def find_stages(
    workers: Workers,
    resolved: Resolved,
    hello: WorkerHello,
    *,
    say: Callable[[str], None],
    beat: Callable[[], None],
) -> Resolved:
    """`resolved` with the layers of every stage."""
    parallel, num_layers = resolved.config.parallel, hello.model.num_layers
    if parallel.stages:
        return resolved
    if parallel.pp == 1:
        return resolved.with_value("stages", (num_layers,), kind="model", note="all its layers")
    path = table_path(resolved, hello)
    costs = read_table(path)
    note = f"from {path}"
    if costs is None:
        say("measuring what a layer costs")
        costs = measure(workers, resolved, hello, beat=beat)
        write_table(path, costs)
        note = "measured at this start"
    stages = stages_from(costs, resolved, layer_kinds=kinds_of(hello.model))
    logger.info("layers of each stage: %s (%s)", ",".join(map(str, stages)), note)
    return resolved.with_value("stages", stages, note=note)


def kinds_of(model: ModelFacts) -> tuple[int, ...]:
    """A kind for each layer."""
    return model.layer_kinds or (0,) * model.num_layers


def stages_from(
    costs: Sequence[LayerCosts], resolved: Resolved, *, layer_kinds: Sequence[int]
) -> tuple[int, ...]:
    """The best split for a cohort's share of the running sequences."""
    parallel = resolved.config.parallel
    rows = max(1, resolved.max_running // (parallel.cohorts or 1))
    return choose_stages(costs, layer_kinds=layer_kinds, num_stages=parallel.pp, rows=rows)


def measure(
    workers: Workers, resolved: Resolved, hello: WorkerHello, *, beat: Callable[[], None]
) -> list[LayerCosts]:
    """Ask worker 0."""
    parallel = resolved.config.parallel
    load = LoadWeights(
        dtype=resolved.dtype,
        kv_dtype=resolved.kv_dtype,
        threads=resolved.threads,
        max_context=resolved.max_context,
        max_running=resolved.max_running,
        prefill_tokens=resolved.prefill_tokens,
        topology=Topology(stages=(hello.model.num_layers,), tp=parallel.tp),
    )
    [measured] = workers.ask(MeasureLayers(load), LayersMeasured, while_waiting=beat, only=[0])
    return measured.costs


def table_path(resolved: Resolved, hello: WorkerHello) -> Path:
    """Named by all that the costs depend on."""
    key = [
        hello.model.model_type,
        hello.versions.get("checkpoint"),
        hello.versions.get("torch"),
        hello.device.name,
        resolved.threads,
        resolved.dtype,
        resolved.config.parallel.tp,
    ]
    digest = hashlib.sha256(msgspec.json.encode(key)).hexdigest()[:16]
    return (
        Path.home()
        / ".cache"
        / "draftmark"
        / "tune"
        / f"stages-{hello.model.model_type}-{digest}.json"
    )


def read_table(path: Path) -> list[LayerCosts] | None:
    """None when nothing was measured yet. A file that is no table is measured again, and said."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[LayerCosts]) or None
    except FileNotFoundError:  # the answer None says it
        return None
    except msgspec.DecodeError as error:
        logger.warning("%s is no cost table (%s): measuring again", path, error)
        return None


def write_table(path: Path, costs: Sequence[LayerCosts]) -> None:
    """In one piece, whoever else writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{id(costs)}.partial")
    partial.write_bytes(msgspec.json.encode(list(costs)))
    partial.replace(path)
