"""`draftmark check`: the numbers of a start, without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftmark.cli.main import main
from draftmark.core.options import options

pytestmark = pytest.mark.usefixtures("fake_worker")


def report(capsys: pytest.CaptureFixture[str], *argv: str, status: int = 0) -> dict[str, Any]:
    assert main(["check", *argv, "--json"]) == status
    [line] = capsys.readouterr().out.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_sizes_and_requests_that_fit(model_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(
        capsys,
        str(model_dir),
        "--kv-pool-tokens",
        "1000",
        "--length",
        "17,500",
        "--max-running",
        "20",
    )
    per_token = found["bytes"]["per_token"]
    assert found["pool_tokens"] == 1008  # whole pages
    assert [entry["length"] for entry in found["requests"]] == [17, 500]
    assert found["requests"][0]["bytes"] == 32 * per_token
    assert found["requests"][0]["fit_in_pool"] == 1008 // 32
    assert [entry["fit"] for entry in found["requests"]] == [20, 1]
    assert found["bytes"]["total"] >= found["bytes"]["kv_pool"] >= 1008 * per_token


def test_every_value_and_source_is_there(
    model_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = report(capsys, str(model_dir), "--max-running", "3", "--port", "0")
    for option in options():
        entry = found["config"][option.section][option.name]
        assert set(entry) == {"value", "source", "note"}
    assert found["config"]["schedule"]["max_running"]["source"] == "flag"
    assert found["config"]["memory"]["state_slots"]["value"] == 4
    assert found["config"]["memory"]["kv_pool_tokens"]["source"] == "measured"
    assert found["sampling"]["temperature"]["source"] == "default"


def test_the_text_shows_the_same(model_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(model_dir), "--length", "100", "--max-running", "2"]) == 0
    text = capsys.readouterr().out
    assert "requests    2 of 100 tokens at once" in text
    for option in options():
        assert f"  {option.name} " in text


def test_a_length_that_could_never_run_fails_with_the_reason(
    model_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(model_dir), "--length", "600"]) == 2
    shown = capsys.readouterr()
    assert "0 of 600 tokens at once" in shown.out and "above the context of 512" in shown.out
    assert "error: a request of 600 tokens could never run" in shown.err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--kv-pool-tokens", "10000000"], "This would fit: --kv-pool-tokens "),
        (["--memory-fraction", "0.0001"], "This would fit: "),
        (["--max-context", "513"], "above the model's own limit of 512"),
        (["--device", "cuda"], "--device cuda: the device found is"),
        (["--length", "0"], "--length must be whole numbers of at least 1"),
        (["--length", "a,b"], "--length must be whole numbers"),
        (["--eager", "none"], "not built yet: --eager none"),
    ],
)
def test_what_would_not_run(
    model_dir: Path, flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(model_dir), *flags]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: ") and words in last
