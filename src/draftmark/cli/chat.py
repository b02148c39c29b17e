"""`draftmark chat`: a conversation in the terminal, with a running server or with a model."""

from __future__ import annotations

import argparse

from draftmark.cli.arguments import (
    ENGINE_SECTIONS,
    CommandParser,
    add_config_flags,
    add_sampling_flags,
    declared_from,
    sampling_from,
)
from draftmark.cli.talk import Conversation
from draftmark.core.errors import ConfigError

_MAX_TOKENS = 512


def run(argv: list[str]) -> int:
    parser = CommandParser(
        "chat",
        about="Chat in the terminal: with a server (--url), or with MODEL, loaded for this "
        "conversation. Ctrl-C stops an answer; /exit, Ctrl-D or a second Ctrl-C leaves.",
    )
    parser.own("--url", metavar="URL", help="A running server, e.g. http://127.0.0.1:8000.")
    parser.own("--api-key-file", metavar="FILE", help="With --url: the key is its first line.")
    parser.own("--system", metavar="TEXT", default="", help="What the model is told first.")
    add_sampling_flags(parser, max_tokens=_MAX_TOKENS)
    add_config_flags(parser, sections=ENGINE_SECTIONS)
    given = parser.parse(argv)
    return _with_server(given) if given.url else _with_model(given)


def _with_server(given: argparse.Namespace) -> int:
    from draftmark.cli.remote import RemoteTalker, read_key

    if "model" in given:
        raise ConfigError("--url names a server, which has its own model: leave MODEL out")
    sampling = sampling_from(given)
    limit = sampling.pop("max_tokens")
    talker = RemoteTalker(given.url, sampling=sampling, api_key=read_key(given.api_key_file))
    try:
        return Conversation(talker, system=given.system, max_tokens=limit).run()
    finally:
        talker.close()


def _with_model(given: argparse.Namespace) -> int:
    from draftmark.cli.local import LocalTalker, open_engine

    sampling = sampling_from(given)
    limit = sampling.pop("max_tokens")
    declared = declared_from(given)
    with open_engine(given) as engine:
        talker = LocalTalker(engine, model=declared.config.model.model, sampling=sampling)
        return Conversation(talker, system=given.system, max_tokens=limit).run()
