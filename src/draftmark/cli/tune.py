"""`draftmark tune stages`: measure what a layer costs, and show the layer splits that follow."""

from __future__ import annotations

import json
import sys
from itertools import islice
from typing import Any

import msgspec

from draftmark.cli.arguments import (
    ALL_SECTIONS,
    CommandParser,
    add_config_flags,
    declared_from,
)
from draftmark.core.errors import ConfigError
from draftmark.core.stage_split import choose_stages, costs_at
from draftmark.core.start import LayerCosts
from draftmark.engine.stage_costs import kinds_of
from draftmark.engine.tuning import StageTable, tune_stages

_SHOWN_STAGES = (2, 3, 4)


def run(argv: list[str]) -> int:
    parser = CommandParser(
        "tune stages",
        about="Measure how long a layer and the ends of MODEL take here, keep the table for later "
        "starts with --pp, and show the split of the layers that follows. Takes the flags of "
        "serve; --stages overrides a split.",
    )
    parser.own("--json", action="store_true", help="One line of JSON.")
    add_config_flags(parser, sections=ALL_SECTIONS)
    if not argv or (argv[0] != "stages" and not argv[0].startswith("-")):
        what = argv[0] if argv else "nothing"
        raise ConfigError(f"draftmark tune takes `stages`; got {what}")
    given = parser.parse(argv[1:] if argv[0] == "stages" else argv)
    table = tune_stages(declared_from(given), progress=_say)
    report = make_report(table)
    print(json.dumps(report) if given.json else render(report))
    return 0


def _say(phase: str) -> None:
    print(phase, file=sys.stderr)


def make_report(table: StageTable) -> dict[str, Any]:
    """Plain values for JSON. A split is for the rows of one of its cohorts."""
    parallel = table.resolved.config.parallel
    counts = sorted({*_SHOWN_STAGES, parallel.pp} - {1})
    return {
        "file": str(table.path),
        "layers": table.model.num_layers,
        "dtype": table.resolved.dtype,
        "tp": parallel.tp,
        "costs": [msgspec.to_builtins(point) for point in table.costs],
        "splits": [
            _split(table, num_stages=count) for count in counts if count <= table.model.num_layers
        ],
    }


def _split(table: StageTable, *, num_stages: int) -> dict[str, Any]:
    rows = max(1, table.resolved.max_running // num_stages)
    kinds = kinds_of(table.model)
    stages = choose_stages(table.costs, layer_kinds=kinds, num_stages=num_stages, rows=rows)
    point = costs_at(table.costs, rows=rows)
    return {
        "pp": num_stages,
        "rows": rows,
        "stages": list(stages),
        "stage_ms": [round(ms, 3) for ms in _stage_ms(point, stages, kinds)],
    }


def _stage_ms(point: LayerCosts, stages: tuple[int, ...], kinds: tuple[int, ...]) -> list[float]:
    layers = iter(kinds)
    times = [sum(point.layer_ms[kind] for kind in islice(layers, count)) for count in stages]
    times[0] += point.embedding_ms
    times[-1] += point.head_ms
    return times


def render(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = ["  rows layer ms by kind   embedding ms   head and sampling ms"]
    lines += [
        f"{point['verify_rows']:6}{_layers_text(point['layer_ms']):>18}"
        f"{point['embedding_ms']:15.3f}{point['head_ms']:23.3f}"
        for point in report["costs"]
    ]
    lines += ["", f"{report['layers']} layers, {report['dtype']}, --tp {report['tp']}"]
    lines += [
        f"--pp {split['pp']}: --stages {','.join(map(str, split['stages']))}  "
        f"({', '.join(f'{ms:.2f}' for ms in split['stage_ms'])} ms at {split['rows']} rows)"
        for split in report["splits"]
    ]
    return "\n".join([*lines, "", f"kept in {report['file']}"])


def _layers_text(layer_ms: list[float]) -> str:
    return ", ".join(f"{ms:.3f}" for ms in layer_ms)
