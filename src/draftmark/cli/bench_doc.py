"""Writes the tables of docs/bench.md from the code: `python -m draftmark.cli.bench_doc`.

What stands around them is written by hand: `python -m draftmark.cli.bench_doc docs/bench.md` puts
each table between its two marks, `<!-- name -->` and `<!-- end of name -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from draftmark.bench.gates import GATES, REPEAT_GATES
from draftmark.bench.metrics import FIGURES, GAP_METRICS, REQUEST_METRICS
from draftmark.bench.profile import load_profile, shipped_profiles
from draftmark.bench.request import Failure
from draftmark.core.errors import ConfigError


def current(text: str) -> str:
    """The document with its tables made anew. Raises `ConfigError` where a mark is missing."""
    for name, table in tables().items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        pattern = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
        if pattern.search(text) is None:
            raise ConfigError(f"no place for the table {name}: {begin} and {end}")
        text = pattern.sub(lambda _, new=f"{begin}\n{table}\n{end}": new, text)  # type: ignore[misc]
    return text


def tables() -> dict[str, str]:
    metrics = [metric.definition for metric in (*REQUEST_METRICS, *GAP_METRICS)]
    profiles = [load_profile(name).profile for name in shipped_profiles()]
    return {
        "metrics": _table(
            ["metric", "unit", "means"], ([f"`{m.name}`", m.unit, m.means] for m in metrics)
        ),
        "figures": _table(
            ["figure", "unit", "basis", "means"],
            ([f"`{f.name}`", f.unit, f.basis, f.means] for f in FIGURES.values()),
        ),
        "gates": _table(
            ["gate", "kind", "holds when", "when it does not"],
            [
                *([f"`{g.id}`", g.kind, g.demands, g.advice] for g in GATES.values()),
                *([f"`{g.id}`", g.kind, g.demands, g.advice] for g in REPEAT_GATES.values()),
            ],
        ),
        "profiles": _table(
            ["profile", "in flight", "requests", "in / out", "prompts", "warm + runs"],
            (
                [
                    f"`{p.name}`",
                    str(p.concurrency),
                    str(p.n_requests),
                    f"{p.isl} / {p.osl}",
                    f"{p.source}, by {p.endpoint}",
                    f"{p.warm_runs} + {p.runs}",
                ]
                for p in profiles
            ),
        ),
        "failures": ", ".join(f"`{failure}`" for failure in Failure) + ".",
    }


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(current(path.read_text()))
