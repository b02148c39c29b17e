"""`draftmark bench quality`: are the answers right? A speed without it says nothing."""

from __future__ import annotations

from pathlib import Path

from draftmark.bench.ask import Reply
from draftmark.bench.quality import (
    check_reference,
    compare_quality,
    read_quality,
    run_quality,
    run_quick,
)
from draftmark.bench.quality.gates import no_degenerate, non_inferior, same_start
from draftmark.bench.quality.problems import Problem, read_arithmetic, read_gsm8k, read_problems
from draftmark.bench.screen import Screen, Ui, open_screen
from draftmark.bench.session import Session, open_session
from draftmark.bench.single_file import write_value
from draftmark.bench.store import load_run
from draftmark.bench.tables import quality_text, quick_table
from draftmark.cli.arguments import CommandParser
from draftmark.cli.bench.server_flags import (
    add_server_flags,
    amount,
    count,
    new_name,
    say_gates,
    settings_from,
    whole,
)
from draftmark.cli.bench.status import of_answers, of_questions
from draftmark.core.errors import ConfigError

_NEEDLE_TOKENS = 3000
_TASKS = ("gsm8k", "arithmetic", "file")


def run(argv: list[str]) -> int:
    parser = CommandParser(
        "bench quality",
        about="Ask problems whose answers are known: GSM8K from a data folder, the arithmetic of "
        "the built-in tiny, a file of your own, or --quick, seven questions of all kinds. With "
        "--ref the same problems are compared one by one with an earlier result.",
        takes="--url URL (--task TASK | --quick) [FLAGS]",
    )
    add_server_flags(parser)
    parser.own("--task", choices=_TASKS, help="What to ask.")
    parser.own("--quick", action="store_true", help="Seven fixed questions.")
    parser.own("--data", type=Path, metavar="DIR", help="Data folder that has gsm8k/.")
    parser.own("--problems", type=Path, metavar="FILE", help="Problems of --task file, JSON lines.")
    parser.own("--n", type=count, metavar="N", help="The first so many problems. [default: all]")
    for flag, kind, default, about in (
        ("--shots", whole, 5, "Solved examples before a problem of gsm8k."),
        ("--max-tokens", count, 1024, "Most tokens of an answer."),
        ("--in-flight", count, 8, "Questions at once."),
    ):
        text = f"{about} [default: {default}]"
        parser.own(flag, type=kind, default=default, metavar="N", help=text)
    parser.own("--ref", type=Path, metavar="FILE", help="Earlier result to compare with.")
    parser.own(
        "--margin",
        type=amount,
        default=0.02,
        metavar="X",
        help="Share that may be lost against --ref. [default: 0.02]",
    )
    parser.own(
        "--run",
        type=Path,
        metavar="DIR",
        help="A speed run, which must be of the same start of the server.",
    )
    given = parser.parse(argv)
    if given.quick == (given.task is not None):
        raise ConfigError("either --task TASK or --quick")
    settings = settings_from(given, ["quality", *argv])
    with open_screen(Ui.PLAIN, steps=10) as screen:
        session = open_session(settings, screen)
        if given.quick:
            return _quick(session, given.out)
        problems = _problems(given.task, given.data, given.problems, given.n, given.shots)
        reference = None if given.ref is None else read_quality(given.ref)
        if reference is not None:
            check_reference(reference, problems, task=given.task)
        speed = None if given.run is None else load_run(given.run)
        asker = session.asker()
        result = run_quality(
            asker,
            problems,
            task=given.task,
            in_flight=given.in_flight,
            start_id=session.adapter.before().start_id,
            fields={"max_tokens": given.max_tokens},
            on_reply=_Progress(screen, of=len(problems)),
        )
    path = given.out / new_name(given.task, "quality.json")
    write_value(path, result)
    paired = None
    if reference is not None and not result.failed:
        paired = compare_quality(result, reference)
    print(f"{quality_text(result, paired)}\nkept in {path}")
    gates = [no_degenerate(result, evidence=path.name)]
    if reference is not None:
        gates.append(non_inferior(paired, margin=given.margin, evidence=path.name))
    if speed is not None:
        gates.append(same_start(result, speed.start_id, evidence=path.name))
    say_gates(gates)
    return of_questions(asker, gates)


def _quick(session: Session, out: Path) -> int:
    """Status 1 unless all seven are right."""
    context = session.adapter.max_context or 2 * _NEEDLE_TOKENS
    asker = session.asker()
    result = run_quick(asker, needle_tokens=min(_NEEDLE_TOKENS, context // 2))
    path = out / new_name("quick.json")
    write_value(path, result)
    print(f"{quick_table(result)}\nkept in {path}")
    return of_answers(asker, holds=result.passed == result.of)


def _problems(
    task: str, data: Path | None, file: Path | None, n: int | None, shots: int
) -> list[Problem]:
    match task:
        case "gsm8k":
            if data is None:
                raise ConfigError("--task gsm8k needs --data DIR, the folder of gsm8k/test.jsonl")
            return read_gsm8k(data, n=n, shots=shots)
        case "arithmetic":
            return read_arithmetic(n=n)
        case _:
            if file is None:
                raise ConfigError("--task file needs --problems FILE")
            return read_problems(file, n=n)


class _Progress:
    """Says how far it is, each tenth of the way."""

    def __init__(self, screen: Screen, *, of: int) -> None:
        self._screen, self._of, self._done = screen, of, 0

    def __call__(self, index: int, reply: Reply) -> None:
        self._done += 1
        if self._done % max(self._of // 10, 1) == 0:
            self._screen.stage(f"{self._done} of {self._of} problems")
