"""`draftmark generate` and `chat MODEL`: an engine for one command, gone afterwards."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from draftmark.cli.main import main
from tests.fakes import worker_process

pytestmark = pytest.mark.usefixtures("fake_worker")


def lines(text: str) -> list[str]:
    return text.splitlines()


def test_json_is_one_line_with_ids_usage_and_timings(
    model_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["generate", str(model_dir), "--prompt", "in the", "--max-tokens", "9", "--json"]
    assert main(argv) == 0
    shown = capsys.readouterr()
    [line] = lines(shown.out)
    answer = json.loads(line)
    assert answer["usage"]["completion_tokens"] == len(answer["token_ids"]) == 9
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] + 9
    assert answer["finish_reason"] == "length"
    assert 0 < answer["timings"]["first_token_s"] <= answer["timings"]["total_s"]
    assert answer["timings"]["start_s"] > 0
    assert isinstance(answer["text"], str) and shown.err == ""


def test_text_and_json_are_the_same_answer(
    model_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ["generate", str(model_dir), "--max-tokens", "9", "--prompt"]
    main([*argv, "in the", "--json"])
    text = json.loads(capsys.readouterr().out)["text"]
    monkeypatch.setattr("sys.stdin", io.StringIO("in the"))
    assert main([*argv, "-"]) == 0
    assert capsys.readouterr().out == text + "\n"


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ([], "error: --prompt TEXT is needed"),
        (["--prompt", ""], "error: --prompt TEXT is needed"),
        (["--prompt", "x", "--temperature", "-1"], "error: temperature must be between"),
        (["--prompt", "x", "--max-tokens", "-1"], "error: max_tokens must be between"),
        (["--prompt", "x", "--eager", "none"], "error: not built yet: --eager none"),
        (["--prompt", "x", "--port", "1"], "error: unknown flag --port"),
        (["--prompt", "x", "--n-predict", "1"], "error: --n-predict is a flag of llama.cpp"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    model_dir: Path, flags: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", str(model_dir), *flags]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(line) and shown.err.count("\n") == 1 and shown.out == ""


def test_a_model_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "./no/such/model", "--prompt", "x"]) == 1
    assert capsys.readouterr().err == "error: no such directory: no/such/model\n"


@pytest.mark.slow
def test_an_engine_that_dies_shows_its_log(
    model_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from draftmark.cli import local
    from draftmark.engine.sync import Engine

    def start(**options: object) -> Engine:
        return Engine(**options, worker=worker_process.command(crash_step=2))  # type: ignore[arg-type]

    monkeypatch.setattr(local, "Engine", start)
    assert main(["generate", str(model_dir), "--prompt", "x"]) == 1
    shown = capsys.readouterr().err
    assert "RuntimeError: the fake worker was told to crash" in shown
    assert lines(shown)[-1].startswith("error: worker 0 ")


def test_a_conversation_with_a_model(
    model_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\nyou\n/exit\n"))
    assert main(["chat", str(model_dir), "--max-tokens", "5"]) == 0
    shown = capsys.readouterr()
    assert shown.err.count("[5 tokens") == 2
    assert shown.out.count("\n") >= 2


@pytest.mark.slow
def test_a_config_file_and_flags_reach_the_engine(
    model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(f"model: {{model: {model_dir}, max_context: 40}}\n")
    flags = ["--config", str(file), "--prompt", "x", "--max-tokens", "60"]
    assert main(["generate", *flags]) == 2
    assert "the context is 40" in capsys.readouterr().err
    assert main(["generate", *flags, "--max-context", "100"]) == 0
