"""`draftmark bench config`: declared settings against effective ones, or two servers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from draftmark.bench.adapters import make_adapter
from draftmark.bench.declared.drift import differences, drift
from draftmark.bench.declared.files import read_declared
from draftmark.bench.result import DriftState, ServerState
from draftmark.bench.tables import difference_table, drift_table
from draftmark.cli.arguments import CommandParser
from draftmark.cli.bench.server_flags import read_key
from draftmark.cli.bench.status import Status
from draftmark.core.errors import ConfigError


def run(argv: list[str]) -> int:
    parser = CommandParser(
        "bench config",
        about="Hold what a server runs with against a file that declares it (YAML, compose, or a "
        "command line), or against another server. Status 2 when they differ.",
        takes="--url URL (--declared FILE | --other URL) [FLAGS]",
    )
    parser.own("--url", required=True, help="The server, as http://HOST:PORT.")
    parser.own("--other", metavar="URL", help="Another server.")
    parser.own("--declared", type=Path, metavar="FILE", help="What the server should run with.")
    parser.own("--service", metavar="NAME", help="Which service of a compose file.")
    parser.own("--model", metavar="NAME", help="[default: the first that the server lists]")
    parser.own(
        "--adapter",
        default="auto",
        metavar="KIND",
        help="Kind of server: auto, draftmark, vllm, sglang or openai. [default: auto]",
    )
    parser.own(
        "--pid",
        type=int,
        metavar="N",
        help="Process of the server on this machine, for vLLM's command line.",
    )
    parser.own("--api-key-file", type=Path, metavar="FILE", help="File with nothing but the key.")
    parser.own("--all", action="store_true", help="Show also what nobody declared.")
    parser.own("--json", action="store_true", help="All rows, as one line of JSON.")
    given = parser.parse(argv)
    if (given.declared is None) == (given.other is None):
        raise ConfigError("either --declared FILE or --other URL")

    def state_of(url: str, pid: int | None) -> ServerState:
        key = read_key(given.api_key_file)
        adapter = make_adapter(given.adapter, url, model=given.model, api_key=key, pid=pid)
        state = adapter.before()
        if state.config is None:
            print(f"warning: {url} tells none of its settings", file=sys.stderr)
        return state

    state = state_of(given.url, given.pid)
    if given.other is not None:
        found = differences(state, state_of(given.other, None))
        text = difference_table(found, names=(given.url, given.other))
        print(_json(found) if given.json else text)
        return Status.INVALID if found else Status.PASS
    declared = read_declared(given.declared, service=given.service)
    print(f"declared: {declared.path} ({declared.kind}), sha256 {declared.sha256}", file=sys.stderr)
    rows = drift(declared, state)
    print(_json(rows) if given.json else drift_table(rows, with_implicit=given.all))
    differs = any(row.state is DriftState.DIFFERS for row in rows)
    return Status.INVALID if differs else Status.PASS


def _json(rows: Sequence[Any]) -> str:
    return msgspec.json.encode(rows).decode()
