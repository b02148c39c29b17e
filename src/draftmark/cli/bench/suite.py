"""`draftmark bench suite`: functional cases that are kept as data."""

from __future__ import annotations

from pathlib import Path

from draftmark.bench.screen import Ui, open_screen
from draftmark.bench.session import open_session
from draftmark.bench.single_file import write_value
from draftmark.bench.suite.baseline import compare_suites, no_new_failure
from draftmark.bench.suite.case import choose_cases, read_cases, shipped_cases
from draftmark.bench.suite.runner import read_suite, run_suite
from draftmark.bench.tables import suite_comparison_table, suite_table
from draftmark.cli.arguments import CommandParser
from draftmark.cli.bench.server_flags import (
    add_server_flags,
    new_name,
    say_gates,
    settings_from,
)
from draftmark.cli.bench.status import of_answers, of_questions


def run(argv: list[str]) -> int:
    parser = CommandParser(
        "bench suite",
        about="Run functional cases one after the other and say which hold. Status 1 when one does "
        "not, or, with --baseline, when one does not that did then.",
        takes="--url URL [FLAGS]",
    )
    add_server_flags(parser)
    parser.own("--cases", metavar="X", help="Ids, ranges or tags: d01-d05,d09. [default: all]")
    parser.own("--from", dest="folder", type=Path, metavar="DIR", help="Cases of your own, YAML.")
    parser.own("--baseline", type=Path, metavar="FILE", help="Result of an earlier suite.")
    given = parser.parse(argv)
    cases = shipped_cases() if given.folder is None else read_cases(given.folder)
    if given.cases is not None:
        cases = choose_cases(cases, given.cases)
    baseline = None if given.baseline is None else read_suite(given.baseline)
    with open_screen(Ui.PLAIN, steps=len(cases)) as screen:
        session = open_session(settings_from(given, ["suite", *argv]), screen)
        start_id, asker = session.adapter.before().start_id, session.asker()
        result = run_suite(
            asker, cases, start_id=start_id, on_case=lambda case: screen.stage(case.id)
        )
    path = given.out / new_name("suite.json")
    write_value(path, result)
    print(f"{suite_table(result)}\nkept in {path}")
    if baseline is None or result.stopped is not None:
        return of_answers(asker, holds=not result.failed)
    compared = compare_suites(result, baseline)
    print(suite_comparison_table(compared))
    gate = no_new_failure(compared, evidence=path.name)
    say_gates([gate])
    return of_questions(asker, [gate])
