"""`draftmark rerun`: run what `--record-plans` wrote again, and say where it differs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from draftmark.cli.arguments import CommandParser
from draftmark.core.errors import ConfigError
from draftmark.core.topology import ONE_WORKER_LANES

if TYPE_CHECKING:
    from draftmark.runtime.rerun import RerunReport

_MOST_GAPS = 10


def run(argv: list[str]) -> int:
    """0 when everything was as recorded, 1 when not."""
    parser = CommandParser(
        "rerun",
        takes="FILE [--forced] [--stages N,N] [--json]",
        about="Run the plans of a recording (serve --record-plans FILE) again, on the model and "
        "sizes it names. Freely, it stops at the first difference and names it.",
    )
    parser.own("file", metavar="FILE", help="The recording.")
    parser.own(
        "--forced",
        action="store_true",
        help="Impose the recorded tokens, so that every step can be compared.",
    )
    parser.own("--json", action="store_true", help="One line of JSON.")
    parser.own(
        "--stages",
        metavar="N,N",
        default="",
        help="Layers of each pipeline stage, all in this process. Without it: as recorded.",
    )
    parser.own(
        "--lanes",
        choices=ONE_WORKER_LANES,
        default="local",
        help="test: with hostile timing between the stages.",
    )
    given = parser.parse(argv)
    stages = _read_stages(given.stages)
    import msgspec

    from draftmark.runtime.rerun import rerun

    report = rerun(Path(given.file), forced=given.forced, stages=stages, lanes=given.lanes)
    print(msgspec.json.encode(report).decode() if given.json else render(report))
    return int(report.divergence is not None)


def _read_stages(text: str) -> list[int]:
    try:
        stages = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        stages = [0]
    if any(count < 1 for count in stages):
        raise ConfigError(f"--stages must be whole numbers of at least 1; got {text!r}")
    return stages


def render(report: RerunReport) -> str:
    """The report for people."""
    kind = "forced" if report.forced else "free"
    lines = [f"{kind} run of {report.steps} steps, {report.tokens} tokens compared"]
    if report.unanswered:
        lines.append(f"{report.unanswered} recorded plans have no result")
    for gap in report.gaps[:_MOST_GAPS]:
        lines.append(
            f"step {gap.step}: {gap.rows} rows would choose another token, by {gap.largest:g} of "
            f"a logit at most (slot {gap.slot})"
        )
    if len(report.gaps) > _MOST_GAPS:
        lines.append(f"... and in {len(report.gaps) - _MOST_GAPS} more steps")
    if report.gaps:
        lines.append(f"largest gap {report.largest_gap:g}")
    lines.append(
        "as recorded" if report.divergence is None else f"first difference: {report.divergence}"
    )
    return "\n".join(lines)
