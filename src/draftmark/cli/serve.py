"""`draftmark serve`: the server, what it is doing while it starts, and how to talk to it."""

from __future__ import annotations

import json
import logging
import os
import shlex
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from draftmark.cli.arguments import (
    ALL_SECTIONS,
    CommandParser,
    add_config_flags,
    declared_from,
)
from draftmark.core.synthetic import synthetic_mark
from draftmark.core.torchrun import read_place
from draftmark.engine.remote import become_worker
from draftmark.engine.source import SHIPPED

if TYPE_CHECKING:
    from draftmark.server.model import ServedModel

_QUESTION = "What is the capital of France?"


def run(argv: list[str]) -> int:
    parser = CommandParser(
        "serve",
        about="Serve a model over HTTP, with the OpenAI protocol under /v1 and a chat page at /. "
        "Ctrl-C or SIGTERM lets running answers end, a second one does not. Started by torchrun, "
        "or with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, rank 0 is the server and every "
        "other rank a worker that joins it.",
    )
    add_config_flags(parser, sections=ALL_SECTIONS)
    declared = declared_from(parser.parse(argv))
    place = read_place(os.environ)
    if place is not None and place.rank > 0:
        become_worker(place, declared)
    from draftmark.server.lifecycle import run_server
    from draftmark.server.logs import configure_logging

    configure_logging()
    if sys.stderr.isatty():
        _quieten()
    began = time.monotonic()

    def announce(url: str, model: ServedModel, ready: Mapping[str, object]) -> None:
        has_keys = declared.config.server.api_key_file is not None
        print(f"\n{ready['budget']}\n\nready after {time.monotonic() - began:.1f} s")
        if mark := synthetic_mark(model.synthetic_acceptance):
            print(mark)
        shipped = SHIPPED.get(declared.config.model.model)
        question = _QUESTION if shipped is None else shipped.question
        print(welcome(url, model, question, has_keys=has_keys), flush=True)

    return run_server(declared, announce=announce, progress=_show)


def _show(phase: str) -> None:
    print(f"{phase} ...", flush=True)


def _quieten() -> None:
    """For people: what the log says of the start is also shown by phase and when ready."""
    quiet = ("draftmark.engine", "draftmark.engine.client")
    for handler in logging.getLogger().handlers:
        handler.addFilter(lambda record: record.levelno > logging.INFO or record.name not in quiet)


def welcome(url: str, model: ServedModel, question: str = _QUESTION, *, has_keys: bool) -> str:
    """What is served where, and a request to paste."""
    return (
        f"{', '.join(model.names)} at {url}/v1, chat page at {url}/\n\n"
        f"{_request(url, model, question, has_keys=has_keys)}\n\nCtrl-C stops it.\n"
    )


def _request(url: str, model: ServedModel, question: str, *, has_keys: bool) -> str:
    """A curl command: a chat where the model has a template, else a completion."""
    body: dict[str, object] = {"model": model.names[0], "max_tokens": 64, "temperature": 0}
    if model.template is None:
        path = "/v1/completions"
        body["prompt"] = question
    else:
        path = "/v1/chat/completions"
        body["messages"] = [{"role": "user", "content": question}]
    key = " -H 'Authorization: Bearer KEY'" if has_keys else ""
    data = shlex.quote(json.dumps(body))
    return f"curl {url}{path} -H 'Content-Type: application/json'{key} -d {data}"
