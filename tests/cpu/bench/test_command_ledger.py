"""`draftmark bench ledger`, and runs whose prompts come from one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftmark.bench.ledger.ledger import Ledger
from draftmark.cli.main import main
from tests.fakes.bench_commands import QUICK, WAIVED, Bench


@pytest.fixture
def ledger(bench: Bench) -> Ledger:
    """With a corpus `books` of 2048 tokens, of which 1000 were used elsewhere."""
    path = bench.folder / "books.jsonl"
    text = bench.folder / "book.txt"
    text.write_text("".join(f"{number:07} " for number in range(256)))
    flags = ["--ledger", path, "--name", "books", "--tokenizer", bench.tokenizer, text]
    assert of_ledger("add", *flags) == 0
    assert of_ledger("import", "--ledger", path, "--corpus", "books", "--used-until", 1000) == 0
    return Ledger(path)


def of_ledger(*words: object) -> int:
    return main(["bench", "ledger", *(str(word) for word in words)])


def shown(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_from_the_first_entry_to_the_last(
    bench: Bench, ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    one = ["--ledger", ledger.path]
    profile = bench.profile(source="ledger", isl=32, n_requests=2)
    assert of_ledger("status", *one, "--profile", profile, "--json") == 0
    found = shown(capsys)["books"]
    assert of_ledger("status", *one) == 0
    assert "| books  |   2048 |     1000 |" in capsys.readouterr().out
    assert (found["num_tokens"], found["imported"], found["left"]) == (2048, 1000, 1048)
    assert found["runs_left"] == 1048 // 64
    order = ["--corpus", "books", "--run-id", "elsewhere", "--prompts", 2, "--tokens", 32]
    assert of_ledger("reserve", *one, *order) == 0
    first, end = shown(capsys)["window"]
    assert first >= 1000 and end == first + 64
    # A run may not have two windows, and a corpus no more than it has.
    assert of_ledger("reserve", *one, *order) == 5
    order[3:] = ["more", "--prompts", 999, "--tokens", 32]
    assert of_ledger("reserve", *one, *order) == 5
    assert "is too small" in capsys.readouterr().err
    assert of_ledger("audit", *one) == 0
    assert "no window twice" in capsys.readouterr().out
    assert of_ledger("export", *one) == 0
    assert [window["status"] for window in shown(capsys)["windows"]] == ["committed"]


def test_every_use_of_a_window(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    one = ["--ledger", ledger.path, "--corpus", "books", "--prompts", 2, "--tokens", 32]
    capsys.readouterr()
    paired = ["--use", "paired", "--start-id"]
    assert of_ledger("reserve", *one, "--run-id", "a", *paired, "S1") == 5
    windows = []
    for name in ("S1", "S2"):
        flags = ["--run-id", name, *paired, name, "--isolated"]
        assert of_ledger("reserve", *one, *flags) == 0
        windows.append(shown(capsys)["window"])
    assert windows[0] == windows[1]
    assert of_ledger("reserve", *one, "--run-id", "b", "--use", "reused", "--start", 5) == 0
    assert shown(capsys)["window"] == [5, 69]


def test_a_torn_line_is_told_and_cut_only_when_asked(
    ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    with ledger.path.open("a") as file:
        file.write('{"kind": "res')
    assert of_ledger("audit", "--ledger", ledger.path) == 2
    assert of_ledger("repair", "--ledger", ledger.path) == 0
    assert "13 bytes cut off" in capsys.readouterr().out
    assert of_ledger("audit", "--ledger", ledger.path) == 0
    lines = ledger.path.read_text().replace('"used_until":1000', '"used_until":900')
    ledger.path.write_text(lines)
    assert of_ledger("audit", "--ledger", ledger.path) == 2


def test_a_run_takes_its_window_and_audit_finds_it(
    bench: Bench, ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--profile", bench.profile(source="ledger", warm_runs=1), "--ledger", ledger.path]
    assert bench("run", *flags, "--run-id", "w", *WAIVED) == 0
    run = bench.runs()["w"]
    assert run.ledger is not None and bench.runs()["w-warm1"].ledger is None
    [window] = ledger.state().corpus("books").windows
    assert (window.status, window.span) == ("committed", run.ledger.window)
    assert window.span[1] - window.span[0] == 6 * 32
    gates = {gate.id: gate for gate in run.gates}
    assert gates["corpus_fresh"].state == "ok" and "fresh window" in gates["corpus_fresh"].observed
    assert of_ledger("audit", "--ledger", ledger.path, "--runs", bench.out) == 0
    other = bench.folder / "other.jsonl"
    text = bench.folder / "other.txt"
    text.write_text("other words")
    names = ["--name", "x", "--tokenizer", bench.tokenizer]
    assert of_ledger("add", "--ledger", other, *names, text) == 0
    assert of_ledger("audit", "--ledger", other, "--runs", bench.out) == 2
    assert "is in no line of this ledger" in capsys.readouterr().out


def test_a_run_that_cannot_be_planned_gives_its_window_back(
    bench: Bench, ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.play(QUICK, max_model_len=16)
    flags = ["--profile", bench.profile(source="ledger"), "--ledger", ledger.path]
    assert bench("run", *flags, "--run-id", "v") == 5
    assert "the server holds 16 together" in capsys.readouterr().err
    [window] = ledger.state().corpus("books").windows
    assert window.status == "void" and ledger.state().corpus("books").num_left == 1048
    assert bench.asked == [] and not list(bench.out.glob("*"))


def test_a_corpus_too_small_for_all_runs_is_found_before_the_first(
    bench: Bench, ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = bench.profile(source="ledger", warm_runs=1, runs=6)
    assert bench("run", "--profile", profile, "--ledger", ledger.path) == 5
    assert "6 runs of 192 tokens, and 5 of them fit" in capsys.readouterr().err
    assert bench.asked == [] and ledger.state().corpus("books").windows == []
    # Shifted windows are no fresh ones, and what comes of them says nothing.
    fresh = ["--profile", bench.profile(source="ledger"), "--ledger", ledger.path]
    assert bench("run", *fresh, "--run-id", "fresh", *WAIVED) == 0
    assert bench("run", *fresh, "--use", "paired", "--run-id", "p") == 5
    few = ["--n-requests", 3, "--use", "shifted", "--run-id", "shifted", *WAIVED]
    assert bench("run", *fresh, *few) == 2
    gates = {gate.id: gate.state for gate in bench.runs()["shifted"].gates}
    assert gates["corpus_fresh"] == "fail"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "which action?"),
        (["reserv"], "did you mean reserve?"),
        (["status"], "--ledger"),
        (["add", "--ledger", "x", "--name", "n"], "which texts?"),
        (["add", "--ledger", "x", "--name", "n", "text"], "--tokenizer X or --url URL"),
        (["status", "--ledger", "nowhere.jsonl"], "nowhere.jsonl"),
        (["audit", "--ledger", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_what_is_wrong_with_the_command_line(
    words: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert of_ledger(*words) == 5
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert of_ledger("--help") == 0
    assert "repair" in capsys.readouterr().out
