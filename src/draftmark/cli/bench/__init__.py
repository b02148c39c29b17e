"""`draftmark bench COMMAND`: figures of any OpenAI-compatible server, and what they rest on.

`status.py` says what each ends with.
"""

from __future__ import annotations

import importlib
import signal
from collections.abc import Callable

from draftmark.bench.profile import shipped_profiles
from draftmark.core.errors import ConfigError

# Each is the function `run` of draftmark.cli.bench.<name>; that of the command `run` is in
# profile_run, because a module called run would take the place of the function below.
COMMANDS = {
    "run": "measure a profile: latency, throughput, acceptance, with gates",
    "trace": "replay a recorded load (Mooncake, Azure, own)",
    "killer": "the load that breaks servers, over several seeds",
    "conc": "the same answers in a crowd as alone?",
    "suite": "functional cases, against a baseline if there is one",
    "quality": "right answers: GSM8K, arithmetic, seven quick questions",
    "calibrate": "how many events a second the load client carries here",
    "ledger": "which windows of a corpus have been used",
    "config": "declared settings against effective ones, or two servers",
    "compare": "runs side by side",
}
_USAGE = "usage: draftmark bench COMMAND [ARGUMENTS]"
_STATUSES = (
    "ends with 0 when every gate holds, 1 when the server failed, 2 when it was not measured as it",
    "must be and nothing is said, 5 when the command line or a file it names is wrong",
)
_MORE = "draftmark bench COMMAND --help explains one; all of it is in docs/bench.md"


def run(argv: list[str]) -> int:
    if not argv:
        raise ConfigError(f"which one? {', '.join(COMMANDS)} (draftmark bench --help)")
    if argv[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    command, rest = argv[0], argv[1:]
    if command not in COMMANDS:
        from draftmark.core.options import did_you_mean

        raise ConfigError(f"unknown bench command {command}{did_you_mean(command, COMMANDS)}")
    module = importlib.import_module(
        f"draftmark.cli.bench.{'profile_run' if command == 'run' else command}"
    )
    chosen: Callable[[list[str]], int] = module.run
    # Who ends it by a signal, like `timeout` and job schedulers, gets what Ctrl-C leaves: what was
    # measured so far, marked.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return chosen(rest)
    finally:
        signal.signal(signal.SIGTERM, before)


def _help() -> str:
    lines = [_USAGE, "", *(f"  {name:<10} {text}" for name, text in COMMANDS.items()), ""]
    lines += ["profiles that come with it, for --profile:"]
    lines += [f"  {name}" for name in shipped_profiles()]
    return "\n".join([*lines, "", *_STATUSES, "", _MORE])
