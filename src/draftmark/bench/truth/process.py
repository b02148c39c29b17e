"""The truth server in a process of its own, so that it takes no time from the client."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from draftmark.bench.truth.script import Exchange, Script


class TruthProcess:
    """A running truth server, told and asked over HTTP; after its death only `close` remains."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.url = url
        self._process = process

    def play(self, script: Script) -> None:
        """Answer by this script from now on, with an empty log."""
        self._ask("/truth/script", msgspec.json.encode(script))

    def log(self) -> list[Exchange]:
        return msgspec.json.decode(self._ask("/truth/log"), type=list[Exchange])

    def kill(self) -> None:
        """Really: as the kernel ends a server that ran out of memory."""
        self._process.kill()
        self._process.wait()

    def close(self) -> list[Exchange]:
        """End it and return its log, which outlives a played death."""
        self._process.terminate()
        last, _ = self._process.communicate()
        return msgspec.json.decode(last, type=list[Exchange]) if last else []

    def _ask(self, path: str, body: bytes | None = None) -> bytes:
        # Around any proxy of the environment: the server is on this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.url + path, data=body, timeout=10) as answer:
            content: bytes = answer.read()
        return content


@contextmanager
def truth_process(script: Script | None = None) -> Iterator[TruthProcess]:
    """A truth server on a free port; it ends with the block."""
    command = [sys.executable, "-m", "draftmark.bench.truth", "--log-at-end"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        truth = TruthProcess(process, process.stdout.readline().decode().strip())
        if script is not None:
            truth.play(script)
        yield truth
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
