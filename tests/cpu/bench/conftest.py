"""Commands of the bench against one truth server a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmark.bench.truth.process import TruthProcess, truth_process
from tests.fakes.bench_commands import Bench, ignore_this_machine


@pytest.fixture(scope="module")
def truth_of_module() -> Iterator[TruthProcess]:
    with truth_process() as process:
        yield process


@pytest.fixture
def bench(truth_of_module: TruthProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    ignore_this_machine(monkeypatch)
    return Bench(truth_of_module, tmp_path)
