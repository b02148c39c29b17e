"""`draftmark bench COMMAND`: figures of any OpenAI-compatible server, and what they rest on.

0 every gate holds, 1 the server failed, 2 the run was not made as it must be and says nothing,
5 the command line or a file it names is wrong.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from draftmark.core.errors import ConfigError

# Each is the function `run` of draftmark.cli.bench.<name>.
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


def run(argv: list[str]) -> int:
    if not argv:
        raise ConfigError(f"which one? {', '.join(COMMANDS)} (draftmark bench --help)")
    if argv[0] in ("-h", "--help", "help"):
        print("\n".join([_USAGE, "", *(f"  {name:<10} {text}" for name, text in COMMANDS.items())]))
        return 0
    command, rest = argv[0], argv[1:]
    if command not in COMMANDS:
        from draftmark.core.options import did_you_mean

        raise ConfigError(f"unknown bench command {command}{did_you_mean(command, COMMANDS)}")
    chosen: Callable[[list[str]], int] = importlib.import_module(
        f"draftmark.cli.bench.{command}"
    ).run
    return chosen(rest)
