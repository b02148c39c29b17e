"""Measures what a start would look up: the costs of a layer and of a model's ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from draftmark.core.declared import Declared, Resolved
from draftmark.core.start import LayerCosts, ModelFacts
from draftmark.engine.launch import WORKER_MODULE
from draftmark.engine.lone_worker import lone_worker, nothing
from draftmark.engine.stage_costs import measure, table_path, write_table


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTable:
    """The table, where it was written, and what it was measured for."""

    costs: list[LayerCosts]
    path: Path
    model: ModelFacts
    resolved: Resolved


def tune_stages(
    declared: Declared,
    *,
    progress: Callable[[str], None],
    worker: Sequence[str] = WORKER_MODULE,
) -> StageTable:
    """Measure with one worker and write the table. Raises what a start would raise."""
    with lone_worker(declared, progress=progress, worker=worker) as asked:
        progress("measuring what a layer costs")
        costs = measure(asked.workers, asked.resolved, asked.hello, beat=nothing)
    path = table_path(asked.resolved, asked.hello)
    write_table(path, costs)
    return StageTable(costs=costs, path=path, model=asked.hello.model, resolved=asked.resolved)
