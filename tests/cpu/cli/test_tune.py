"""`draftmark tune stages`, with a real worker on a tiny model, and a start that uses its table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftmark.cli.main import main
from draftmark.core.resolve import load_config
from draftmark.core.start import LayerCosts
from draftmark.engine.inspection import inspect
from draftmark.engine.stage_costs import read_table, write_table
from tests.cpu.runtime.model_dir import write_tiny_llama

FLAGS = ("--max-running", "8", "--kv-pool-tokens", "256", "--max-context", "64", "--threads", "1")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a home of its own, so that no table is there yet."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return write_tiny_llama(tmp_path / "tiny")


def report(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert main(["tune", "stages", *argv, "--json"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.mark.slow
def test_a_table_is_measured_kept_and_used(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = report(capsys, str(model), *FLAGS)
    assert found["layers"] == 2 and found["tp"] == 1
    assert [point["verify_rows"] for point in found["costs"]] == [1, 4, 8]
    assert found["splits"][0]["pp"] == 2 and found["splits"][0]["stages"] == [1, 1]
    path = Path(found["file"])
    assert path.is_relative_to(tmp_path / "home")
    assert [point.layer_ms for point in read_table(path) or []] == [
        point["layer_ms"] for point in found["costs"]
    ]
    declared = load_config(
        {"model": str(model), "pp": 2, "max_running": 8, "kv_pool_tokens": 256, "threads": 1}
    )
    # A start that finds the table uses it: one that says otherwise is believed.
    write_table(path, [_costs(head_ms=0.0)])
    said: list[str] = []
    stages = inspect(declared, progress=said.append).resolved
    assert "measuring what a layer costs" not in said
    assert stages.config.parallel.stages == (1, 1)
    assert str(path) in stages.sources["parallel.stages"].note


def _costs(*, head_ms: float) -> LayerCosts:
    return LayerCosts(
        verify_rows=4, context_tokens=32, layer_ms=[1.0], embedding_ms=0.0, head_ms=head_ms
    )


def test_a_broken_table_is_measured_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "table.json"
    assert read_table(path) is None
    path.write_text("[{]")
    assert read_table(path) is None
    assert "is no cost table" in caplog.text


def test_only_stages_are_tuned(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["tune"], ["tune", "kernels"]):
        assert main(argv) == 2
        assert "error: draftmark tune takes `stages`" in capsys.readouterr().err
