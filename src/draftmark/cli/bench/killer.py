"""`draftmark bench killer`: one run a seed, all of which must live and take the same time."""

from __future__ import annotations

import msgspec

from draftmark.bench.killer import judge_killer
from draftmark.bench.profile import load_profile
from draftmark.bench.result import Role, RunResult, RunState
from draftmark.bench.screen import Ui, open_screen
from draftmark.bench.session import Work, open_session, work_of
from draftmark.bench.single_file import check_new, write_value
from draftmark.cli.arguments import CommandParser
from draftmark.cli.bench.profile_run import show
from draftmark.cli.bench.server_flags import (
    add_run_flags,
    add_server_flags,
    amount,
    new_name,
    say_gates,
    settings_from,
)
from draftmark.cli.bench.status import of_gates
from draftmark.core.errors import ConfigError


def run(argv: list[str]) -> int:
    parser = CommandParser(
        "bench killer",
        about="Many long prompts at once, again with every seed: nothing may crash or fail, and "
        "the slowest may be no further from the fastest than the bound.",
        takes="--url URL [--profile PROFILE] [FLAGS]",
    )
    add_server_flags(parser)
    parser.own("--profile", default="killer_cc16", help="Name or file. [default: killer_cc16]")
    parser.own(
        "--seeds", default="6402,6403", metavar="N,N", help="A run each. [default: 6402,6403]"
    )
    parser.own(
        "--bound",
        type=amount,
        default=0.02,
        metavar="X",
        help="How much longer than the fastest run the slowest may take. [default: 0.02]",
    )
    add_run_flags(parser)
    given = parser.parse(argv)
    seeds = _seeds(given.seeds)
    work = work_of(load_profile(given.profile))
    base = given.run_id or new_name(work.profile.name)
    ui = Ui(given.ui)
    kept = given.out / f"{base}.json"
    check_new(kept)
    runs: list[RunResult] = []
    with open_screen(ui, steps=len(seeds)) as screen:
        session = open_session(settings_from(given, ["killer", *argv]), screen)
        for seed in seeds:
            name = f"{base}-seed{seed}"
            screen.stage(name)
            profile = msgspec.structs.replace(work.profile, seed=seed)
            seeded = Work(profile=profile, files=work.files)
            _, result = session.run(seeded, role=Role.KILLER, run_id=name)
            runs.append(result)
            if result.state is RunState.PARTIAL:
                break
    killer = judge_killer(runs, bound=given.bound, waive=given.waive)
    write_value(kept, killer)
    if ui is not Ui.JSON:
        show(runs)
    say_gates(killer.gates)
    return of_gates(killer.gates, runs)


def _seeds(text: str) -> list[int]:
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--seeds {text}: numbers with commas between") from error
    if len(seeds) != len(set(seeds)) or len(seeds) < 2:
        raise ConfigError(f"--seeds {text}: at least two different ones")
    return seeds
