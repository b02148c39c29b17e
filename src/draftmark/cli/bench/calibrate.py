"""`draftmark bench calibrate`: what the load client carries on this machine."""

from __future__ import annotations

from pathlib import Path

from draftmark.bench.calibrate import calibrate
from draftmark.bench.report.table import table
from draftmark.bench.single_file import check_new, write_value
from draftmark.cli.arguments import CommandParser
from draftmark.cli.bench.status import Status


def run(argv: list[str]) -> int:
    parser = CommandParser(
        "bench calibrate",
        about="Find the rate of events that one client process carries, against a server whose "
        "times are known. Do it on a machine that does nothing else.",
        takes="[FLAGS]",
    )
    for flag, kind, default, about in (
        ("--streams", int, 128, "Answers at a time, to begin with."),
        ("--rate", float, 50.0, "Events a second of each."),
        ("--seconds", float, 3.0, "How long each try takes."),
    ):
        text = f"{about} [default: {default:g}]"
        parser.own(flag, type=kind, default=default, metavar="N", help=text)
    parser.own("--out", type=Path, metavar="FILE", help="Where to keep it, for --calibration.")
    given = parser.parse(argv)
    if given.out is not None:
        check_new(given.out)
    found = calibrate(streams=given.streams, rate=given.rate, seconds=given.seconds)
    head = ["streams", "events/s", "lag p50 ms", "lag p99 ms", "carried"]
    rows = [
        [
            str(cell.streams),
            f"{cell.written_rate:.0f}",
            f"{cell.lag_p50_ms:.2f}",
            f"{cell.lag_p99_ms:.2f}",
            "yes" if cell.is_carried else "no",
        ]
        for cell in found.cells
    ]
    print(table(head, rows, numbers=True))
    carried = "nothing" if found.rate is None else f"{found.rate:.0f} events a second"
    print(
        f"\none process carries {carried} with a lag (p99) of at most {found.lag_limit_ms:g} ms; "
        f"the limit was the {found.bound}; load average before: {found.load_average:.2f}"
    )
    if given.out is not None:
        write_value(given.out, found)
        print(f"kept in {given.out}")
    return Status.PASS if found.rate is not None else Status.INVALID
