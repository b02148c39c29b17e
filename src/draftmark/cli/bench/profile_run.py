"""`draftmark bench run`: warm runs that count for nothing, then measured ones."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from draftmark.bench.profile import check_profile, load_profile
from draftmark.bench.report.compare import compare
from draftmark.bench.report.markdown import comparison_markdown, run_markdown
from draftmark.bench.result import Role, RunResult, RunState
from draftmark.bench.screen import Screen, Ui, open_screen
from draftmark.bench.session import Session, Work, open_session, warm_work, work_of
from draftmark.cli.arguments import CommandParser
from draftmark.cli.bench.server_flags import (
    add_prompt_flags,
    add_run_flags,
    add_server_flags,
    new_name,
    settings_from,
)
from draftmark.cli.bench.status import of_gates


def run(argv: list[str]) -> int:
    parser = CommandParser(
        "bench run",
        about="Measure a server by a profile: shipped ones by name, others by path. Warm runs "
        "first (random ids), then the measured ones, each kept in a folder with its requests, "
        "gates and a report.",
        takes="--url URL --profile PROFILE [FLAGS]",
    )
    add_server_flags(parser)
    parser.own(
        "--profile",
        required=True,
        help="What is sent: a file, or one of those that `draftmark bench --help` lists.",
    )
    own = {"type": int, "metavar": "N"}
    parser.own("--concurrency", **own, help="Requests in flight, in place of the profile's.")
    parser.own("--n-requests", **own, help="Requests of a run, in place of the profile's.")
    parser.own("--seed", **own, help="In place of the profile's.")
    parser.own("--runs", **own, help="Measured runs, in place of the profile's.")
    parser.own("--warm", **own, dest="warm_runs", help="Warm runs, in place of the profile's.")
    add_run_flags(parser)
    add_prompt_flags(parser)
    given = parser.parse(argv)
    file = load_profile(given.profile)
    names = ("concurrency", "n_requests", "seed", "runs", "warm_runs")
    changed = {name: vars(given)[name] for name in names if vars(given)[name] is not None}
    profile = msgspec.structs.replace(file.profile, **changed)
    check_profile(profile, where=f"profile {profile.name}")
    work = work_of(msgspec.structs.replace(file, profile=profile))
    settings = settings_from(given, ["run", *argv])
    base = given.run_id or new_name(profile.name)
    ui = Ui(given.ui)
    with open_screen(ui, steps=profile.warm_runs + profile.runs) as screen:
        session = open_session(settings, screen)
        session.check(profile, runs=profile.runs)
        runs = list(measured_runs(session, screen, work, base=base))
    if ui is not Ui.JSON:
        show(runs)
    return of_gates([], runs)


def measured_runs(
    session: Session, screen: Screen, work: Work, *, base: str
) -> Iterator[RunResult]:
    """The warm runs of the profile, then the measured ones, which are given. Ends early with a run
    that broke off: nothing measured after it would mean the same."""
    profile = work.profile
    warm = warm_work(work)
    for number in range(1, profile.warm_runs + 1):
        if not session.can_warm:
            screen.warn("no warm runs: they need token ids, and there is no tokenizer for them")
            break
        name = f"{base}-warm{number}"
        screen.stage(name)
        _, result = session.run(warm, role=Role.WARM, run_id=name)
        if result.state is RunState.PARTIAL:
            yield result
            return
    for number in range(1, profile.runs + 1):
        name = f"{base}-{number}" if profile.runs > 1 else base
        screen.stage(name)
        _, result = session.run(work, role=Role.MEASURE, run_id=name)
        yield result
        if result.state is RunState.PARTIAL:
            return


def show(runs: list[RunResult]) -> None:
    """On stdout: each run, and several side by side."""
    for result in runs:
        print(run_markdown(result))
    if len(runs) > 1:
        print(comparison_markdown(compare(runs)))
