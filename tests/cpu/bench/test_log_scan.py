"""The log of a run: only what lies between the marks, and each kind of bad line once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from draftmark.bench.log_scan import CLASSES, open_log, scan_log
from draftmark.core.errors import ConfigError, Unavailable

BAD_LINES = {
    "nan": [
        "layer 3 produced NaN",
        "loss=nan step 4",
        "2 NaNs in logits",
        "first non-finite value in layer 7",
    ],
    "fallback": [
        "WARNING: falling back to the loop for experts",
        "MoE fallback path taken",
        "fell back to eager",
        "using the fall-back kernel",
    ],
    "feature_disabled": [
        "prefix caching is disabled for hybrid models",
        "Disabling chunked prefill",
        "CUDA graphs are not supported with this backend",
        "argument x will be ignored",
    ],
    "oom": [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate",
        "worker hit OOM",
        "kernel: oom-kill: task=python",
    ],
    "retract": ["KV cache pool is full. 3 requests retracted", "sequence preempted 2 times"],
    "xid": ["NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus"],
    "nccl": ["rank 3 NCCL WARN Call to recv failed", "ncclInternalError: internal check failed"],
    "traceback": ["Traceback (most recent call last):", "thread 'main' panicked at src/x.rs:3"],
}
GOOD_LINES = """\
server_args=ServerArgs(disable_radix_cache=False, enable_nan_detection=False, fallback_model=None)
started with --on-nan stop, on_nan: stop, --disable-cuda-graph
finance nanoseconds bananas oomph room
Step took 3 ms, 16 running
"""


@pytest.mark.parametrize(
    ("name", "line"), [(name, line) for name, lines in BAD_LINES.items() for line in lines]
)
def test_a_bad_line_counts_in_its_class_alone(name: str, line: str) -> None:
    found = {row.klass: row for row in scan_log(f"{GOOD_LINES}{line}\n".encode())}
    assert {klass for klass, row in found.items() if row.count} == {name}
    assert found[name].examples == [line]


def test_names_of_flags_are_no_events() -> None:
    rows = scan_log(GOOD_LINES.encode())
    assert [row.klass for row in rows] == [one.name for one in CLASSES]
    assert all(row.count == 0 and row.examples == [] for row in rows)


def test_limits_and_allowed_lines() -> None:
    data = b"falling back to A\nfalling back to B\nNaN\n"
    rows = {row.klass: row for row in scan_log(data, allowed=["back to A$"], limits={"nan": 2})}
    assert (rows["fallback"].count, rows["fallback"].limit) == (1, 0)
    assert (rows["nan"].count, rows["nan"].limit) == (1, 2)
    assert rows["retract"].limit is None
    with pytest.raises(ConfigError, match="nans"):
        scan_log(data, limits={"nans": 1})
    with pytest.raises(ConfigError, match=r"\(oops"):
        scan_log(data, allowed=["(oops"])


def test_examples_are_few_and_short() -> None:
    row = next(row for row in scan_log(b"NaN " * 1000 + b"\n" + b"NaN\n" * 9) if row.klass == "nan")
    assert row.count == 10
    assert len(row.examples) == 5
    assert len(row.examples[0]) == 300


def test_a_file_is_cut_at_its_marks(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("before NaN\n")
    log = open_log(f"file:{path}")
    began = log.mark()
    with path.open("a") as file:
        file.write("within\n")
    ended = log.mark()
    with path.open("a") as file:
        file.write("after NaN\n")
    assert log.slice(began, ended) == b"within\n"
    assert log.slice(began, began) == b""
    assert open_log(str(path)).mark().offset == path.stat().st_size


def test_a_log_that_was_cut_or_rotated_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("long line before\n")
    log = open_log(str(path))
    began = log.mark()
    path.write_text("new\n")
    with pytest.raises(Unavailable, match="rotated or cut"):
        log.slice(began, log.mark())
    path.write_text("long line before\n")
    began = log.mark()
    (tmp_path / "next.log").write_text("another file, longer than the first one\n")
    os.replace(tmp_path / "next.log", path)
    with pytest.raises(Unavailable, match="rotated or cut"):
        log.slice(began, log.mark())


@pytest.mark.parametrize("name", ["file:", "docker:", "file:none.log"])
def test_a_log_that_is_not_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--log"):
        open_log(name).mark()


def _fake(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("source", "command", "wanted"),
    [
        ("docker:llm", "docker", ["logs", "--since", "--until", "llm"]),
        ("journald:llm.service", "journalctl", ["--since=@", "--until=@", "--unit=llm.service"]),
    ],
)
def test_logs_behind_a_command(
    source: str, command: str, wanted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake(tmp_path, command, 'echo "$@"; echo "NaN" >&2', monkeypatch)
    log = open_log(source)
    data = log.slice(log.mark(), log.mark()).decode()
    assert all(word in data for word in wanted)
    assert "NaN\n" in data  # what the command writes as errors belongs to the log
    _fake(tmp_path, command, "echo no such thing; exit 3", monkeypatch)
    with pytest.raises(Unavailable, match="status 3: no such thing"):
        log.slice(log.mark(), log.mark())


def test_a_command_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    log = open_log("docker:llm")
    with pytest.raises(Unavailable, match="docker"):
        log.slice(log.mark(), log.mark())
