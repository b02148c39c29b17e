"""The file under the ledger: its chain, torn ends, full disks, and processes that are killed."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from draftmark.bench.ledger.audit import audit
from draftmark.bench.ledger.choose import Order
from draftmark.bench.ledger.entries import Repaired
from draftmark.bench.ledger.journal import read_journal
from draftmark.bench.ledger.ledger import Ledger
from draftmark.bench.ledger.state import overlap
from draftmark.core.errors import ConfigError
from tests.fakes.bench_tokens import numbered

ORDER = Order(num_prompts=2, prompt_tokens=20)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add(numbered(100_000))
    return ledger


def test_each_line_carries_the_hash_of_the_one_before(ledger: Ledger) -> None:
    first = ledger.reserve("r0", "books", ORDER)
    ledger.commit(first.line_sha)
    lines = ledger.path.read_bytes().splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds == ["opened", "corpus", "reserve", "commit"]
    hashes = ["0" * 64, *(hashlib.sha256(line).hexdigest() for line in lines)]
    assert [json.loads(line)["prev"] for line in lines] == hashes[:-1]
    assert first.line_sha == hashes[3]


@pytest.mark.parametrize("spoil", ["changed", "removed", "swapped", "no entry"])
def test_a_line_that_was_touched_is_found(ledger: Ledger, spoil: str) -> None:
    for n in range(3):
        ledger.reserve(f"r{n}", "books", ORDER)
    lines = ledger.path.read_bytes().splitlines(keepends=True)
    match spoil:
        case "changed":
            lines[2] = lines[2].replace(b'"start":0', b'"start":9')
        case "removed":
            del lines[2]
        case "swapped":
            lines[2], lines[3] = lines[3], lines[2]
        case _:
            lines[2] = b"{}\n"
    ledger.path.write_bytes(b"".join(lines))
    with pytest.raises(ConfigError, match=r":3: not an entry|:[34]: the chain is broken"):
        ledger.reserve("r9", "books", ORDER)
    with pytest.raises(ConfigError):
        ledger.state()
    assert len(audit(ledger)) == 1


def test_a_ledger_of_another_version_is_not_read(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add(numbered(1000))
    first, *_ = ledger.path.read_bytes().splitlines(keepends=True)
    ledger.path.write_bytes(first.replace(b'"version":1', b'"version":2'))
    with pytest.raises(ConfigError, match=r":1: not an entry \(Invalid enum value 2"):
        ledger.state()


def test_a_torn_last_line_is_told_and_repaired_only_when_asked(ledger: Ledger) -> None:
    ledger.reserve("r0", "books", ORDER)
    whole = ledger.path.read_bytes()
    ledger.path.write_bytes(whole + b'{"kind":"reserve","prev"')
    assert ledger.state().torn_bytes == 24
    assert ledger.state().corpus("books").used() == [(0, 40)]
    with pytest.raises(ConfigError, match=r"line 4 is torn \(24 bytes.*`ledger repair`"):
        ledger.reserve("r1", "books", ORDER)
    assert [fault for fault in audit(ledger) if "torn" in fault]
    assert ledger.path.read_bytes().startswith(whole)

    assert ledger.repair() == 24
    assert ledger.repair() == 0
    entry = read_journal(ledger.path).entries[-1][1]
    assert isinstance(entry, Repaired) and entry.torn_bytes == 24
    assert ledger.reserve("r1", "books", ORDER).start == 40
    assert audit(ledger) == []


def test_the_first_line_torn_is_repaired_too(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.path.write_bytes(b'{"kind"')
    with pytest.raises(ConfigError, match="line 1 is torn"):
        ledger.add(numbered(1000))
    ledger.repair()
    ledger.add(numbered(1000))
    assert audit(ledger) == []
    assert len(ledger.state().ledger) == 32


def test_what_is_no_file_to_write_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, message in (
        (tmp_path, "a folder, not a file"),
        (tmp_path / "file" / "ledger.jsonl", "cannot be opened .Not a directory."),
        (tmp_path / "none" / "ledger.jsonl", "there is no folder"),
    ):
        with pytest.raises(ConfigError, match=message):
            Ledger(path).add(numbered(1000))
        with pytest.raises(ConfigError):
            Ledger(path).state()


def test_a_disk_too_full_for_the_tokens_adds_no_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    ledger.add(numbered(1000))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left on device"):
        ledger.add(numbered(2000, name="more"))
    monkeypatch.undo()
    assert set(ledger.state().corpora) == {"books"}
    assert not list(tmp_path.glob("**/*.part"))


def test_a_full_disk_leaves_the_ledger_as_it_was(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the line is written before the disk is full."""
    before = ledger.path.read_bytes()
    real = os.write

    def full(fd: int, data: bytes) -> int:
        if len(data) < 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data[: len(data) - 50])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ConfigError, match=r"cannot be written .No space left on device."):
        ledger.reserve("r0", "books", ORDER)
    monkeypatch.undo()
    assert ledger.path.read_bytes() == before
    assert ledger.reserve("r0", "books", ORDER).start == 0


RESERVE_FOR_EVER = """
import itertools, pathlib, sys
from draftmark.bench.ledger.choose import Order
from draftmark.bench.ledger.ledger import Ledger

ledger = Ledger(pathlib.Path(sys.argv[1]))
for n in itertools.count():
    order = Order(num_prompts=2, prompt_tokens=20)
    reservation = ledger.reserve(f"{sys.argv[2]}/{n}", "books", order)
    if n % 3 == 0:
        ledger.commit(reservation.line_sha)
    elif n % 3 == 1:
        ledger.void(reservation.line_sha, bytes_sent=0, reason="not sent")
"""


def _start(path: Path, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", RESERVE_FOR_EVER, str(path), name])


def _num_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def test_eight_processes_and_kill_9_use_no_window_twice(ledger: Ledger) -> None:
    """Each of eight is killed in the middle of what it does, and another takes its place."""
    rng = random.Random(8)
    processes = {n: _start(ledger.path, f"p{n}") for n in range(8)}
    kills = 0
    try:
        deadline = time.monotonic() + 120
        while kills < 16:
            assert time.monotonic() < deadline, f"{_num_lines(ledger.path)} lines in 120 s"
            lines = _num_lines(ledger.path)
            while _num_lines(ledger.path) < lines + 10 and time.monotonic() < deadline:
                time.sleep(rng.uniform(0.001, 0.01))
            victim = rng.choice(sorted(processes))
            processes[victim].kill()
            assert processes[victim].wait() == -signal.SIGKILL, "it ended by itself before"
            kills += 1
            if ledger.state().torn_bytes:
                ledger.repair()
            if kills <= 8:
                processes[victim] = _start(ledger.path, f"p{victim}.{kills}")
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    if ledger.state().torn_bytes:
        ledger.repair()
    assert audit(ledger) == []
    live = sorted(window.span for window in ledger.state().corpus("books").live)
    assert len(live) > 50
    assert not any(overlap(one, other) for one, other in pairwise(live))
    assert ledger.reserve("after", "books", ORDER).start >= 0
