"""`draftmark COMMAND ...`: finds the command, and is the one place where errors become exit codes.

0 done, 1 failed, 2 the command line or a file it names is wrong, 130 stopped by Ctrl-C; `bench` has
its own (`cli/bench/status.py`). A user's fault is one line, `error: ...`; anything else
is a crash and shows its traceback.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version

from draftmark.core.errors import ConfigError, DraftmarkError, NotBuilt, RequestError

# Each is the function `run` of draftmark.cli.<name>.
COMMANDS = {
    "serve": "serve a model over HTTP (OpenAI-compatible), with a chat page",
    "chat": "chat in the terminal, with a running server or a model",
    "generate": "complete one prompt",
    "check": "say what would run, without running it",
    "rerun": "run recorded plans again and compare",
    "stacks": "show what every process of a server is doing",
    "tune": "measure what a layer costs, and how to split them (`tune stages`)",
    "bench": "measure any OpenAI-compatible server (`bench --help`)",
}
# Names that stay; what they do is not there yet.
PLANNED = {
    "verdict": "judge a change by measurements",
}
EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
_USAGE = "usage: draftmark COMMAND [ARGUMENTS]"


def main(argv: Sequence[str] | None = None) -> int:
    """The console script. Returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _dispatch(arguments)
        sys.stdout.flush()
        return status
    except DraftmarkError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if arguments[:1] == ["bench"]:
            from draftmark.cli.bench.status import of_error

            return of_error(error)
        return EXIT_USAGE if isinstance(error, ConfigError | RequestError) else EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left (`| head`); the flush at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED


def _dispatch(arguments: list[str]) -> int:
    if not arguments:
        print(_help(), file=sys.stderr)
        return EXIT_USAGE
    command, rest = arguments[0], arguments[1:]
    if command in ("-h", "--help", "help"):
        print(_help())
        return 0
    if command in ("-V", "--version", "version"):
        print(f"draftmark {version('draftmark')}")
        return 0
    if command in PLANNED:
        raise NotBuilt(f"draftmark {command} is not built yet", param=command)
    if command not in COMMANDS:
        from draftmark.core.options import did_you_mean

        kind = "flag before the command" if command.startswith("-") else "command"
        raise ConfigError(f"unknown {kind} {command}{did_you_mean(command, COMMANDS)}")
    run: Callable[[list[str]], int] = importlib.import_module(f"draftmark.cli.{command}").run
    return run(rest)


def _help() -> str:
    lines = [_USAGE, "", "commands:"]
    lines += [f"  {name:<10} {text}" for name, text in COMMANDS.items()]
    lines += ["", "names that stay, not built yet:"]
    lines += [f"  {name:<10} {text}" for name, text in PLANNED.items()]
    lines += ["", "draftmark COMMAND --help explains one; draftmark --version prints the version."]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
