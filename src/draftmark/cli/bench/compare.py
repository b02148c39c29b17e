"""`draftmark bench compare A B ...`: runs side by side, and only what means the same divided."""

from __future__ import annotations

from pathlib import Path

from draftmark.bench.report.compare import compare
from draftmark.bench.report.markdown import comparison_markdown
from draftmark.bench.store import load_run
from draftmark.cli.arguments import CommandParser
from draftmark.core.errors import ConfigError


def run(argv: list[str]) -> int:
    parser = CommandParser(
        "bench compare",
        about="Show runs side by side, each figure against that of the first.",
        takes="RUN RUN ...",
    )
    parser.own("runs", nargs="*", type=Path, metavar="RUN", help="Folder of a run.")
    given = parser.parse(argv)
    if len(given.runs) < 2:
        raise ConfigError("compare takes two or more folders of runs")
    print(comparison_markdown(compare([load_run(folder) for folder in given.runs])), end="")
    return 0
