"""Commands mark what coins have accepted, and what a model says they leave as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftmark.cli.main import main
from draftmark.cli.remote import read_piece
from draftmark.cli.talk import Piece
from draftmark.core.synthetic import synthetic_mark
from tests.cpu.cli.test_talk import Scripted, talk

MARK = synthetic_mark([0.777])
FLAGS = ["--draft", "ngram", "--synthetic-acceptance", "0.777"]


@pytest.mark.usefixtures("fake_worker")
def test_generate(model_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["generate", str(model_dir), "--prompt", "in the", "--max-tokens", "9"]
    assert main([*argv, *FLAGS]) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    assert first == MARK
    assert main([*argv, *FLAGS, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["synthetic_acceptance"] == [0.777]
    assert main([*argv, "--json"]) == 0
    assert "synthetic" not in capsys.readouterr().out


@pytest.mark.usefixtures("fake_worker")
def test_the_log_of_a_start(
    model_dir: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["generate", str(model_dir), "--prompt", "in", "--max-tokens", "2", *FLAGS]) == 0
    assert any(r.levelname == "WARNING" and MARK in r.getMessage() for r in caplog.records)


def test_it_needs_drafts(model_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", str(model_dir), "--prompt", "x", *FLAGS[2:]]) == 2
    assert "--synthetic-acceptance 0.777 needs drafts" in capsys.readouterr().err


def test_chat_marks_each_answer_and_remembers_what_was_said() -> None:
    talker = Scripted(
        [Piece(text="a", mark=MARK), Piece(text="b", acceptance_length=2.0, mark=MARK)]
    )
    _, shown, notes = talk(talker, "one\ntwo\n")
    assert shown == f"{MARK}\nab\n" * 2
    assert notes.count("synthetic acceptance length 2.00") == 2
    assert talker.asked[1][1] == {"role": "assistant", "content": "ab"}


def test_a_server_tells_it_in_every_event() -> None:
    event = {"choices": [{"delta": {"content": "a"}}]}
    assert read_piece({**event, "synthetic_acceptance": [0.777]}).mark == MARK
    assert read_piece(event).mark == ""
