"""`draftmark bench compare A B ...`: runs side by side, and only what means the same divided."""

from __future__ import annotations

from pathlib import Path

from draftmark.bench.report.compare import compare
from draftmark.bench.report.markdown import comparison_markdown
from draftmark.bench.report.together import Kept, comparison_html
from draftmark.bench.store import StoreError, load_records, load_run
from draftmark.cli.arguments import CommandParser
from draftmark.core.errors import ConfigError


def run(argv: list[str]) -> int:
    parser = CommandParser(
        "bench compare",
        about="Show runs side by side, each figure against that of the first. What does not mean "
        "the same (a broken run, other metrics, other sources of token counts) is refused with "
        "status 2; runs that differ otherwise, or may not be believed, are shown without ratios.",
        takes="RUN RUN ... [FLAGS]",
    )
    parser.own("runs", nargs="*", type=Path, metavar="RUN", help="Folder of a run.")
    parser.own("--html", type=Path, metavar="FILE", help="Also as a page, with their curves.")
    given = parser.parse(argv)
    if len(given.runs) < 2:
        raise ConfigError("compare takes two or more folders of runs")
    runs = [load_run(folder) for folder in given.runs]
    print(comparison_markdown(compare(runs)), end="")
    if given.html is not None:
        kept = [
            Kept(run, load_records(folder)) for run, folder in zip(runs, given.runs, strict=True)
        ]
        _write(given.html, comparison_html(kept))
    return 0


def _write(path: Path, page: str) -> None:
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{path} could not be written: {error.strerror}") from error
