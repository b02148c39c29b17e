"""`draftmark bench ledger ACTION`: what of a corpus has been sent to a server, and what is left."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from draftmark.bench.adapters import make_adapter
from draftmark.bench.ledger.audit import audit, export
from draftmark.bench.ledger.choose import Order
from draftmark.bench.ledger.corpus import read_corpus
from draftmark.bench.ledger.entries import Use
from draftmark.bench.ledger.ledger import Ledger
from draftmark.bench.ledger.state import CorpusState, summary
from draftmark.bench.profile import load_profile
from draftmark.bench.report.table import table
from draftmark.bench.tokenizer import BenchTokenizer, FileTokenizer, find_tokenizer
from draftmark.cli.arguments import CommandParser
from draftmark.cli.bench.server_flags import count
from draftmark.cli.bench.status import Status
from draftmark.core.errors import ConfigError
from draftmark.core.options import did_you_mean

_FIGURES = ("num_tokens", "imported", "left", "largest_free")
_HEAD = [
    "corpus",
    "tokens",
    "imported",
    "left",
    "largest free",
    "open",
    "used",
    "void",
    "runs left",
]


def run(argv: list[str]) -> int:
    if not argv:
        raise ConfigError(f"which action? {', '.join(_ACTIONS)}")
    action, rest = argv[0], argv[1:]
    if action in ("-h", "--help", "help"):
        print(_help())
        return 0
    if action not in _ACTIONS:
        near = did_you_mean(action, _ACTIONS)
        raise ConfigError(f"bench ledger takes {', '.join(_ACTIONS)}; got {action}{near}")
    run_action, _ = _ACTIONS[action]
    return run_action(rest)


def _help() -> str:
    lines = ["usage: draftmark bench ledger ACTION --ledger FILE [FLAGS]", ""]
    lines += [f"  {name:<8} {about}" for name, (_, about) in _ACTIONS.items()]
    return "\n".join([*lines, "", "draftmark bench ledger ACTION --help explains one."])


def _parser(action: str, *, about: str, takes: str) -> CommandParser:
    parser = CommandParser(f"bench ledger {action}", about=about, takes=f"--ledger FILE {takes}")
    parser.own("--ledger", type=Path, required=True, metavar="FILE", help="The ledger's file.")
    return parser


def _add(argv: list[str]) -> int:
    parser = _parser(
        "add",
        about="Cut texts into tokens and enter them as a corpus. The tokens lie beside the ledger.",
        takes="--name NAME (--tokenizer X | --url URL) TEXT ...",
    )
    parser.own("texts", nargs="*", type=Path, metavar="TEXT", help="Files, in this order.")
    parser.own("--name", required=True, metavar="NAME", help="What the corpus is called.")
    parser.own(
        "--tokenizer",
        metavar="X",
        help="The model's tokenizer: a folder, a tokenizer.json or, with --url, a hub id.",
    )
    parser.own("--url", help="A server that has /tokenize, where there is no tokenizer file.")
    parser.own("--note", default="", metavar="TEXT", help="For readers of the ledger.")
    given = parser.parse(argv)
    if not given.texts:
        raise ConfigError("which texts? At least one file")
    corpus = read_corpus(given.texts, name=given.name, tokenizer=_tokenizer(given))
    _show([Ledger(given.ledger).add(corpus, note=given.note)], run_tokens=None)
    return 0


def _import(argv: list[str]) -> int:
    parser = _parser(
        "import",
        about="Enter that a corpus was used up to a token by runs that this ledger does not know.",
        takes="--corpus NAME --used-until N",
    )
    parser.own("--corpus", required=True, metavar="NAME", help="Entered before, with `add`.")
    parser.own("--used-until", type=int, required=True, metavar="N", help="The first unused token.")
    parser.own("--note", default="", metavar="TEXT", help="For readers of the ledger.")
    given = parser.parse(argv)
    ledger = Ledger(given.ledger)
    _show(
        [ledger.import_used(given.corpus, used_until=given.used_until, note=given.note)],
        run_tokens=None,
    )
    return 0


def _reserve(argv: list[str]) -> int:
    parser = _parser(
        "reserve",
        about="Take a window for a run of another tool. It counts as used from now on.",
        takes="--corpus NAME --run-id ID --prompts N --tokens N",
    )
    parser.own("--corpus", required=True, metavar="NAME", help="Corpus of the ledger.")
    parser.own("--run-id", required=True, metavar="NAME", help="Who uses the window.")
    parser.own("--prompts", type=count, required=True, metavar="N", help="Prompts of the run.")
    parser.own("--tokens", type=count, required=True, metavar="N", help="Tokens of a prompt.")
    parser.own(
        "--use",
        default="fresh",
        choices=[use.value for use in Use],
        help="Kind of window. [default: fresh]",
    )
    parser.own("--start", type=int, metavar="N", help="Its first token, for --use reused.")
    parser.own("--start-id", metavar="ID", help="Start of the server, for --use paired.")
    parser.own(
        "--isolated",
        action="store_true",
        help="No cache outlives a start of the server: --use paired needs that.",
    )
    given = parser.parse(argv)
    order = Order(
        num_prompts=given.prompts,
        prompt_tokens=given.tokens,
        use=Use(given.use),
        start_id=given.start_id,
        isolated=given.isolated,
        start=given.start,
    )
    ledger = Ledger(given.ledger)
    reservation = ledger.reserve(given.run_id, given.corpus, order)
    ledger.commit(reservation.line_sha)
    print(json.dumps({"corpus": given.corpus, "window": [reservation.start, reservation.end]}))
    return 0


def _status(argv: list[str]) -> int:
    parser = _parser("status", about="What is left of each corpus.", takes="[--profile PROFILE]")
    parser.own("--profile", help="Say how many of its runs are left.")
    parser.own("--json", action="store_true", help="One line of JSON.")
    given = parser.parse(argv)
    run_tokens = None
    if given.profile is not None:
        profile = load_profile(given.profile).profile
        run_tokens = profile.n_requests * profile.isl
    corpora = list(Ledger(given.ledger).state().corpora.values())
    if given.json:
        named = {one.added.corpus: summary(one, run_tokens=run_tokens) for one in corpora}
        print(json.dumps(named))
    else:
        _show(corpora, run_tokens=run_tokens)
    return 0


def _audit(argv: list[str]) -> int:
    parser = _parser(
        "audit",
        about="Check the chain, that no fresh window overlaps another, and, with --runs, that "
        "every run has the window that it says it had. Status 2 when something is wrong.",
        takes="[--runs DIR]",
    )
    parser.own("--runs", type=Path, metavar="DIR", help="Folder of runs.")
    given = parser.parse(argv)
    faults = audit(Ledger(given.ledger), runs=given.runs)
    print("\n".join(faults) if faults else "chain intact, no window twice")
    return Status.INVALID if faults else Status.PASS


def _export(argv: list[str]) -> int:
    given = _parser("export", about="Everything, as JSON.", takes="").parse(argv)
    print(json.dumps(export(Ledger(given.ledger).state()), indent=1))
    return 0


def _repair(argv: list[str]) -> int:
    given = _parser(
        "repair",
        about="Cut off a last line that was torn by a crash, and enter that this was done.",
        takes="",
    ).parse(argv)
    print(f"{Ledger(given.ledger).repair()} bytes cut off")
    return 0


def _tokenizer(given: argparse.Namespace) -> BenchTokenizer:
    if given.url is None:
        if given.tokenizer is None:
            raise ConfigError("--tokenizer X or --url URL says how to cut the text")
        path = Path(given.tokenizer)
        return FileTokenizer(path / "tokenizer.json" if path.is_dir() else path)
    adapter = make_adapter("auto", given.url)
    found = find_tokenizer(
        given.tokenizer,
        control=adapter.control,
        model=adapter.model,
        is_served=adapter.accepts.tokenize,
    )
    if found is None:
        raise ConfigError(f"{given.url} has no /tokenize: --tokenizer X")
    return found


def _show(corpora: list[CorpusState], *, run_tokens: int | None) -> None:
    rows = []
    for corpus in corpora:
        found = summary(corpus, run_tokens=run_tokens)
        figures = [found[name] for name in _FIGURES]
        rows.append([corpus.added.corpus, *figures, *found["windows"].values(), found["runs_left"]])
    print(table(_HEAD, rows, numbers=True))


_ACTIONS: dict[str, tuple[Callable[[list[str]], int], str]] = {
    "add": (_add, "cut texts into tokens and enter them as a corpus"),
    "import": (_import, "enter that a corpus was used elsewhere, up to a token"),
    "reserve": (_reserve, "take a window for a run of another tool"),
    "status": (_status, "what is left of each corpus"),
    "audit": (_audit, "prove that no window was used twice"),
    "export": (_export, "everything, as JSON"),
    "repair": (_repair, "cut off a last line that a crash tore"),
}
