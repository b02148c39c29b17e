"""Commands over the real engine process and a fake worker."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from tests.fakes import worker_process
from tests.fakes.tokenizer import write_model_dir


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory whose worker is a fake: a tokenizer and an empty config."""
    directory = write_model_dir(tmp_path_factory.mktemp("model") / "fake")
    (directory / "config.json").write_text(json.dumps({}))
    return directory


@pytest.fixture
def fake_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that start an engine get one whose worker needs no torch."""
    from draftmark.cli import check, local
    from draftmark.engine import inspection, sync

    worker = worker_process.command()
    monkeypatch.setattr(local, "Engine", functools.partial(sync.Engine, worker=worker))
    monkeypatch.setattr(check, "inspect", functools.partial(inspection.inspect, worker=worker))
