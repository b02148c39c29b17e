"""The commands with the built-in model: real weights, a real worker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from draftmark import Engine
from draftmark.cli.main import main

pytestmark = [pytest.mark.model, pytest.mark.slow]

# A pool and slots of a size that a busy machine gives at once.
SMALL = ["--kv-pool-tokens", "2048", "--max-running", "4"]
DEADLINE_S = 300.0


def run(*argv: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "draftmark.cli.main", *argv, *SMALL]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=DEADLINE_S)


def test_generate_says_paris() -> None:
    prompt = ("--prompt", "The capital of France is")
    done = run("generate", *prompt, "--max-tokens", "4", "--temperature", "0", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert "Paris" in answer["text"]
    assert answer["usage"]["completion_tokens"] == len(answer["token_ids"]) == 4


def test_chat_says_paris() -> None:
    done = run("chat", "--temperature", "0", text="What is the capital of France?\n")
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout


def test_check_foretells_what_a_start_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "smollm2", "--dtype", "bfloat16", "--json", *SMALL]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    with Engine("smollm2", dtype="bfloat16", kv_pool_tokens=2048, max_running=4) as engine:
        ready = engine.ready
    assert found["bytes"]["weights"] / 1e9 == pytest.approx(ready["weights_gb"], abs=1e-4)
    assert (found["pool_tokens"], found["model"]["vocab_size"]) == (2048, ready["vocab_size"])
    record = msgspec.convert(ready["resolved"], dict[str, Any])
    assert found["config"] == record["config"]
    assert found["sampling"]["temperature"] == {"value": 0.2, "source": "built-in model smollm2"}


def test_a_recorded_run_is_run_again_and_a_change_is_found(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    prompt = ("--prompt", "Once upon a time", "--max-tokens", "6", "--temperature", "0")
    done = run("generate", *prompt, "--json", "--record-plans", str(file))
    ids = json.loads(done.stdout)["token_ids"]
    assert again(file) == (0, "as recorded")
    assert again(file, "--forced") == (0, "as recorded")
    changed = tmp_path / "changed.jsonl"
    changed.write_text(file.read_text().replace(f"[{ids[3]}]", f"[{ids[3] + 1}]", 1))
    status, last = again(changed)
    assert status == 1
    assert f"emitted was [{ids[3] + 1}], is [{ids[3]}]" in last


def again(file: Path, *flags: str) -> tuple[int, str]:
    """(exit status, last line) of `draftmark rerun`."""
    command = [sys.executable, "-m", "draftmark.cli.main", "rerun", str(file), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    return done.returncode, (done.stdout or done.stderr).splitlines()[-1]
