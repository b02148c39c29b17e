"""Flags that say which server is measured, what is known about it, and where results go."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

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
    parser.own("--url", required=True, help="The server, as http://HOST:PORT.")
    parser.own(
        "--model", metavar="NAME", help="Model to ask for. [default: the first that it lists]"
    )
    parser.own(
        "--adapter",
        default="auto",
        metavar="KIND",
        help="Kind of server: auto, draftmark, vllm, sglang or openai. [default: auto]",
    )
    parser.own("--api-key-file", type=Path, metavar="FILE", help="File with nothing but the key.")
    parser.own(
        "--out",
        type=Path,
        default=Path("runs"),
        metavar="DIR",
        help="Folder where results are kept. [default: runs]",
    )


def add_run_flags(parser: CommandParser) -> None:
    """What commands that measure speed know besides."""
    own = parser.own
    own("--run-id", metavar="NAME", help="How the runs' names begin. [default: time and profile]")
    own(
        "--config-id",
        default="server",
        metavar="NAME",
        help="What this server is called in comparisons. [default: server]",
    )
    own(
        "--tokenizer",
        metavar="X",
        help="The model's tokenizer: a folder, a tokenizer.json or a hub id. [default: from the "
        "Hugging Face cache, or by asking the server]",
    )
    own(
        "--declared",
        type=Path,
        metavar="FILE",
        help="What the server should run with (YAML, compose, or a command line); where it runs "
        "otherwise, nothing is sent.",
    )
    own("--service", metavar="NAME", help="Which service of a compose file in --declared.")
    own(
        "--log",
        metavar="X",
        help="The server's log, to be looked through: file:PATH, docker:NAME or journald:UNIT.",
    )
    own(
        "--allow",
        action="append",
        default=[],
        metavar="REGEX",
        help="Log lines that are expected; as often as needed.",
    )
    own(
        "--waive",
        action="append",
        default=[],
        metavar="GATE",
        help="Accept that this gate is unknown, where a server cannot tell; as often as needed.",
    )
    own(
        "--pid",
        type=int,
        metavar="N",
        help="Process of the server on this machine, for its memory and for vLLM's command line. "
        "[default: for its memory, the one that listens at --url]",
    )
    own(
        "--shards",
        type=count,
        metavar="N",
        help="Processes of the client. [default: by the load of the profile]",
    )
    own(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="What `bench calibrate` found; it sizes the shards.",
    )
    own("--keep-text", action="store_true", help="Keep the answers, in requests.jsonl.gz.")
    own(
        "--ui",
        default="auto",
        choices=[ui.value for ui in Ui],
        help="What is shown meanwhile; json gives events on stdout. [default: auto]",
    )


def add_prompt_flags(parser: CommandParser) -> None:
    parser.own("--data", type=Path, metavar="DIR", help="Folder of a profile's prompt files.")
    parser.own(
        "--ledger",
        type=Path,
        metavar="FILE",
        help="The ledger, for profiles whose prompts come from one (`bench ledger`).",
    )
    parser.own("--corpus", metavar="NAME", help="Corpus of the ledger. [default: its only one]")
    parser.own(
        "--use",
        default="fresh",
        choices=[use.value for use in Use if use is not Use.REUSED],
        help="Which windows of the corpus. [default: fresh]",
    )
    parser.own(
        "--isolated",
        action="store_true",
        help="No cache outlives a start of the server: --use paired needs that.",
    )


def count(text: str) -> int:
    """Of a flag: a whole number above 0."""
    return _number(text, int, least=1)


def whole(text: str) -> int:
    """Of a flag: a whole number, 0 or above."""
    return _number(text, int, least=0)


def amount(text: str) -> float:
    """Of a flag: a number that is not below 0."""
    return _number(text, float, least=0)


Number = TypeVar("Number", int, float)


def _number(text: str, kind: type[Number], *, least: int) -> Number:
    try:
        value = kind(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} is no number") from error
    if not least <= value < math.inf:
        raise argparse.ArgumentTypeError(f"at least {least}, not {text}")
    return value


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
