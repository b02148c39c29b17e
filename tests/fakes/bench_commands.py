"""`draftmark bench` in this process, against a truth server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from draftmark.bench import timeline
from draftmark.bench.adapters import base
from draftmark.bench.gates import conduct, repeats
from draftmark.bench.result import RunResult
from draftmark.bench.store import load_run
from draftmark.bench.truth.process import TruthProcess
from draftmark.bench.truth.script import Exchange, Reply, Script
from draftmark.cli.main import main
from tests.fakes.bench_tokens import file_tokenizer

QUICK = Reply(ttft_ms=2, gap_ms=1, cached_tokens=0)
# The truth server does not tell when it was started.
WAIVED = ("--waive", "one_start")


class Bench:
    """`bench("run", ...)` gives the status. Runs and the tokenizer are under `folder`."""

    def __init__(self, truth: TruthProcess, folder: Path) -> None:
        self.truth = truth
        self.folder = folder
        self.out = folder / "runs"
        self.tokenizer = folder / "tokenizer"
        self.tokenizer.mkdir()
        file_tokenizer(self.tokenizer)
        truth.play(Script(replies=[QUICK]))

    def flags(self, command: str) -> list[str]:
        named = ["bench", command, "--url", self.truth.url, "--adapter", "draftmark"]
        named += ["--out", str(self.out)]
        if command in ("run", "trace", "killer"):
            named += ["--tokenizer", str(self.tokenizer)]
        return named

    def __call__(self, command: str, *flags: object) -> int:
        return main([*self.flags(command), *(str(flag) for flag in flags)])

    def profile(self, **changes: Any) -> Path:
        """A small one, with one run and nothing before it."""
        fields = {
            "name": "small",
            "concurrency": 2,
            "n_requests": 6,
            "isl": 32,
            "osl": 4,
            "warm_runs": 0,
            "timeout_s": 20,
        }
        path = self.folder / "small.yaml"
        path.write_text(yaml.safe_dump({**fields, **changes}))
        return path

    def play(self, *replies: Reply, **script: Any) -> None:
        self.truth.play(Script(replies=list(replies), **script))

    @property
    def asked(self) -> list[Exchange]:
        return self.truth.log()

    def runs(self) -> dict[str, RunResult]:
        return {path.parent.name: load_run(path.parent) for path in self.out.glob("*/run.json")}

    def kept(self, pattern: str) -> Any:
        """The one JSON file of that name."""
        [path] = self.out.glob(pattern)
        return json.loads(path.read_text())


def ignore_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests run beside: how busy the machine is must fail no gate."""
    for name in ("LAG_MS", "CPU_SHARE", "LITTLE"):
        monkeypatch.setattr(conduct, name, 1e9)
    # The truth server keeps all that it was asked.
    monkeypatch.setattr(repeats, "MEMORY_GROWTH", 1e9)
    monkeypatch.setattr(timeline, "LEAST_SHARE_OF_WALL", 0.0)
    # In the truth server nothing runs once all is counted: two quick looks find it at rest.
    monkeypatch.setattr(base, "_LOOK_S", 0.02)
