"""Runs a truth server until it is told to end.

    python -m draftmark.bench.truth [--script SCRIPT.json] [--port 0] [--log-at-end]

Its address is the first line of what it prints; with --log-at-end the log of all exchanges is the
last one.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

import msgspec

from draftmark.bench.truth.script import Script
from draftmark.bench.truth.server import TruthServer


async def _run(script: Script, *, host: str, port: int) -> TruthServer:
    server = TruthServer(script)
    await server.start(host=host, port=port)
    print(server.url, flush=True)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await ended.wait()
    await server.close()
    return server


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m draftmark.bench.truth")
    parser.add_argument("--script", type=Path, help="what to answer, as JSON (`truth/script.py`)")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--log-at-end", action="store_true", help="print all exchanges at the end")
    options = parser.parse_args()
    script = Script()
    if options.script is not None:
        script = msgspec.json.decode(options.script.read_bytes(), type=Script)
    server = asyncio.run(_run(script, host=options.host, port=options.port))
    if options.log_at_end:
        sys.stdout.buffer.write(msgspec.json.encode(server.exchanges) + b"\n")


if __name__ == "__main__":
    main()
