"""The guard against leftover processes sees children and orphans, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.conftest import SESSION_MARK, leftovers

WAIT_FOR_EOF = "import sys; print('up', flush=True); sys.stdin.read()"
LEAVE_AN_ORPHAN = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=sys.stdin, stdout=sys.stdout)
print(child.pid, flush=True)
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
