"""`draftmark bench conc`: the same requests alone and in a crowd."""

from __future__ import annotations

from draftmark.bench.conc import TIE_NATS, conc_gate, run_conc
from draftmark.bench.screen import Ui, open_screen
from draftmark.bench.session import open_session
from draftmark.bench.single_file import write_value
from draftmark.bench.tables import conc_table
from draftmark.cli.arguments import CommandParser
from draftmark.cli.bench.server_flags import (
    add_server_flags,
    amount,
    count,
    new_name,
    say_gates,
    settings_from,
)
from draftmark.cli.bench.status import of_questions


def run(argv: list[str]) -> int:
    parser = CommandParser(
        "bench conc",
        about="Short, long, streamed and tool requests, alone and then at once in several orders: "
        "every answer must be what it was alone, but for ties of the model itself.",
        takes="--url URL [FLAGS]",
    )
    add_server_flags(parser)
    for flag, default, about in (
        ("--in-flight", 16, "Requests at once."),
        ("--rounds", 3, "How often, each time in another order."),
        ("--long-tokens", 1500, "Tokens of the long prompts, about."),
        ("--max-tokens", 64, "Most tokens of an answer."),
    ):
        text = f"{about} [default: {default}]"
        parser.own(flag, type=count, default=default, metavar="N", help=text)
    parser.own(
        "--tie-nats",
        type=amount,
        default=TIE_NATS,
        metavar="X",
        help="Two tokens are a tie when their log probabilities are no further apart. "
        f"[default: {TIE_NATS}]",
    )
    given = parser.parse(argv)
    with open_screen(Ui.PLAIN, steps=given.rounds) as screen:
        asker = open_session(settings_from(given, ["conc", *argv]), screen).asker()
        result = run_conc(
            asker,
            in_flight=given.in_flight,
            rounds=given.rounds,
            tie_nats=given.tie_nats,
            long_tokens=given.long_tokens,
            max_tokens=given.max_tokens,
            on_round=lambda number: screen.stage(f"round {number}"),
        )
    path = given.out / new_name("conc.json")
    write_value(path, result)
    gate = conc_gate(result, evidence=path.name)
    print(f"{conc_table(result)}\nkept in {path}")
    say_gates([gate])
    return of_questions(asker, [gate])
