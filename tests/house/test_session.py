"""What tests/conftest.py promises: reasons for skips, a word on what was left out, no leftovers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import LACKS, SESSION_MARK, leftovers

ROOT = Path(__file__).resolve().parents[2]
WAIT_FOR_EOF = "import sys; print('up', flush=True); sys.stdin.read()"
LEAVE_AN_ORPHAN = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=sys.stdin, stdout=sys.stdout)
print(child.pid, flush=True)
"""
PLANTED = """
import subprocess, sys
import pytest

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.slow
@pytest.mark.browser
def test_slow_page(): pass

@pytest.mark.browser
def test_page(): pass

def test_plain(): pass
"""
LEAVING = """
import subprocess, sys
KEPT = []

def test_leaves_a_process():
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    KEPT.append(subprocess.Popen(command, stdin=subprocess.PIPE))
"""


def test_a_child_and_an_orphan_are_found_and_strangers_are_not() -> None:
    env = {**os.environ, SESSION_MARK: "mine"}
    stranger_env = {**os.environ, SESSION_MARK: "other"}
    read_end, write_end = os.pipe()
    command = [sys.executable, "-c", LEAVE_AN_ORPHAN, WAIT_FOR_EOF]
    with (
        subprocess.Popen(command, env=env, stdin=read_end, stdout=subprocess.PIPE) as parent,
        subprocess.Popen(
            [sys.executable, "-c", WAIT_FOR_EOF],
            env=stranger_env,
            stdin=read_end,
            stdout=subprocess.PIPE,
        ) as stranger,
    ):
        os.close(read_end)
        try:
            assert parent.stdout is not None
            assert stranger.stdout is not None
            lines = {parent.stdout.readline().strip(), parent.stdout.readline().strip()}
            assert stranger.stdout.readline().strip() == b"up"
            parent.wait(timeout=10)
            orphan = int(next(line for line in lines if line != b"up"))
            assert {p.pid for p in leftovers("mine")} == {orphan}
            assert {p.pid for p in leftovers("other")} == {stranger.pid}
        finally:
            os.close(write_end)


def run_pytest(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A session of its own on one planted file, under our configuration and conftest."""
    (folder / "test_planted.py").write_text(text)
    fixed = ["-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *fixed, *options, str(folder)]
    env = {name: value for name, value in os.environ.items() if name != SESSION_MARK}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)


def test_what_is_left_out_is_said_before_the_last_line(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, PLANTED, "-q", "-m", "not slow and not browser")
    said, last = run.stdout.splitlines()[-2:]
    assert said == "left out: 1 browser, 2 slow (scripts/test all runs everything)"
    assert last.startswith("1 passed, 3 deselected in ")
    assert run.returncode == 0


def test_what_the_machine_lacks_is_skipped_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    run = run_pytest(tmp_path, PLANTED, "-q", "-rs")
    assert run.stdout.count("browser: chromium and chromedriver not found on PATH") == 2
    assert run.stdout.splitlines()[-1].startswith("2 passed, 2 skipped in ")


def test_every_marker_of_a_need_is_declared(pytestconfig: pytest.Config) -> None:
    declared = {line.partition(":")[0] for line in pytestconfig.getini("markers")}
    assert declared >= {"slow", *LACKS}


@pytest.mark.slow  # the guard gives a process five seconds to end by itself
def test_a_session_that_leaves_a_process_fails(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, LEAVING, "-q")
    assert run.returncode == 1
    assert "processes left behind by the tests (killed now)" in run.stdout
