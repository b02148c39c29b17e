"""`draftmark generate`: complete one prompt, as text that streams or as one line of JSON."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from draftmark.cli.arguments import (
    ENGINE_SECTIONS,
    CommandParser,
    add_config_flags,
    add_sampling_flags,
    sampling_from,
)
from draftmark.core.errors import ConfigError
from draftmark.core.synthetic import rates_of, synthetic_mark

if TYPE_CHECKING:
    from draftmark import Engine
    from draftmark.engine.results import Completion

_MAX_TOKENS = 128


def run(argv: list[str]) -> int:
    parser = CommandParser(
        "generate", about="Complete one prompt, which is taken as it is (see chat)."
    )
    parser.own("--prompt", metavar="TEXT", help="The prompt; - reads it from standard input.")
    parser.own("--json", action="store_true", help="One line: text, token_ids, usage, timings.")
    parser.own("--ignore-eos", action="store_true", help="Go on to --max-tokens.")
    add_sampling_flags(parser, max_tokens=_MAX_TOKENS)
    add_config_flags(parser, sections=ENGINE_SECTIONS)
    given = parser.parse(argv)
    sampling: dict[str, Any] = {**sampling_from(given), "ignore_eos": given.ignore_eos}
    prompt = sys.stdin.read() if given.prompt == "-" else given.prompt
    if not prompt:
        raise ConfigError("--prompt TEXT is needed")
    from draftmark.cli.local import open_engine

    began = time.monotonic()
    with open_engine(given) as engine:
        start_s = time.monotonic() - began
        if given.json:
            [answer] = engine.generate(prompt, **sampling)
            rates = rates_of(engine.ready)
            print(json.dumps(answer_record(answer, start_s=start_s, synthetic_acceptance=rates)))
        else:
            if mark := synthetic_mark(rates_of(engine.ready)):
                print(mark, flush=True)
            _stream(engine, prompt, sampling)
    return 0


def answer_record(
    answer: Completion, *, start_s: float, synthetic_acceptance: Sequence[float] = ()
) -> dict[str, Any]:
    """What `--json` prints. `start_s` is the time until the engine was ready."""
    usage = dataclasses.asdict(answer.usage)
    if usage["speculation"] is None:
        del usage["speculation"]
    return {
        **({"synthetic_acceptance": synthetic_acceptance} if synthetic_acceptance else {}),
        "text": answer.text,
        "token_ids": answer.token_ids,
        "finish_reason": answer.finish_reason,
        "usage": {**usage, "total_tokens": answer.usage.total_tokens},
        "timings": {**dataclasses.asdict(answer.timings), "start_s": start_s},
    }


def _stream(engine: Engine, prompt: str, sampling: dict[str, Any]) -> None:
    for delta in engine.stream(prompt, **sampling):
        sys.stdout.write(delta.text)
        sys.stdout.flush()
    sys.stdout.write("\n")
