"""Flags that say which server is measured, what is known about it, and where results go."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from draftmark.bench.ledger.entries import Use
from draftmark.bench.result import Gate
from draftmark.bench.screen import Ui
from draftmark.bench.session import Settings
from draftmark.cli.arguments import CommandParser
from draftmark.core.errors import ConfigError

# Flags that are fields of `Settings` by the same name.
_NAMED = (
    *("adapter", "model", "config_id", "tokenizer", "data", "ledger", "corpus", "declared"),
    *("service", "log", "allow", "waive", "pid", "shards", "calibration", "keep_text", "isolated"),
)


def add_server_flags(parser: CommandParser) -> None:
    parser.own("--url", required=True, help="Of the server, http://HOST:PORT.")
    parser.own("--model", help="Name to ask for. [default: the first that the server lists]")
    parser.own("--adapter", default="auto", help="auto, draftmark, vllm, sglang or openai.")
    parser.own("--api-key-file", type=Path, metavar="FILE", help="A key, alone in a file.")
    parser.own("--out", type=Path, default=Path("runs"), metavar="DIR", help="[default: runs]")


def add_run_flags(parser: CommandParser) -> None:
    """What commands that measure speed know besides."""
    parser.own("--run-id", help="Beginning of the runs' names. [default: time and profile]")
    parser.own("--config-id", default="server", help="What this server is called in comparisons.")
    parser.own("--tokenizer", metavar="X", help="Folder, tokenizer.json or hub id of the model.")
    parser.own("--declared", type=Path, metavar="FILE", help="What the server should run with.")
    parser.own("--service", help="Of a compose file in --declared.")
    parser.own(
        "--log", metavar="X", help="The server's log: file:PATH, docker:NAME, journald:UNIT."
    )
    parser.own("--allow", action="append", default=[], metavar="REGEX", help="Expected log lines.")
    parser.own("--waive", action="append", default=[], metavar="GATE", help="Accept as unknown.")
    parser.own("--pid", type=int, help="Of the server, where it runs here: vLLM's command line.")
    parser.own("--shards", type=int, help="Client processes. [default: by the profile's load]")
    parser.own("--calibration", type=Path, metavar="FILE", help="Of `bench calibrate`.")
    parser.own("--keep-text", action="store_true", help="Keep the answers in requests.jsonl.gz.")
    parser.own("--ui", default="auto", choices=[ui.value for ui in Ui], help="What is shown.")


def add_prompt_flags(parser: CommandParser) -> None:
    parser.own("--data", type=Path, metavar="DIR", help="Folder of prompt files.")
    parser.own("--ledger", type=Path, metavar="FILE", help="Which corpus windows were used.")
    parser.own("--corpus", help="Of the ledger. [default: its only one]")
    uses = [use.value for use in Use if use is not Use.REUSED]
    parser.own("--use", default="fresh", choices=uses, help="Of windows. [default: fresh]")
    parser.own(
        "--isolated",
        action="store_true",
        help="No cache outlives a start of the server, as --use paired needs.",
    )


def settings_from(given: argparse.Namespace, command: Sequence[str]) -> Settings:
    """Of whichever of the flags above the command has."""
    values = vars(given)
    known = {name: values[name] for name in _NAMED if name in values}
    if values.get("use"):
        known["use"] = Use(values["use"])
    return Settings(
        url=given.url,
        runs=given.out,
        command=["draftmark", "bench", *command],
        api_key=read_key(given.api_key_file),
        **known,
    )


def read_key(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"--api-key-file {path}: {error.strerror}") from error


def new_name(*parts: str) -> str:
    """Of a run or a result: the time, then `parts`."""
    return "-".join([datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"), *parts])


def say_gates(gates: Sequence[Gate]) -> None:
    """Those of a result that is no run, one line each, on stderr."""
    for gate in gates:
        print(f"{gate.state:>7}  {gate.id}: {gate.observed} ({gate.limit})", file=sys.stderr)
