"""A worker on another machine, or started by torchrun: finds the engine, then is like any other.

`python -m draftmark.runtime.remote --model-dir DIR --config JSON`, with the environment that
`core.torchrun` reads. `draftmark serve` becomes this process where RANK is not 0.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from datetime import timedelta

import psutil
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from draftmark.core.lifeline import CLOCK, LENGTH, STACKS, TRACE, keep_alive
from draftmark.core.parent import PARENT_GONE_STATUS
from draftmark.core.torchrun import CONNECT_S, Place, read_place
from draftmark.core.trace import TraceFile
from draftmark.runtime.rank import OwnView, Rank
from draftmark.runtime.worker import WorkerProcess, noted_in

logger = logging.getLogger("draftmark.runtime.remote")  # here __name__ is __main__


def main() -> None:
    parser = argparse.ArgumentParser(prog="draftmark.runtime.remote")
    parser.add_argument("--model-dir", required=True)
    parser.add_argument("--config", required=True)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    faulthandler.enable()
    place = read_place(os.environ)
    assert place is not None and place.rank > 0, "rank 0 is the server"
    import_s = time.time() - psutil.Process().create_time()
    store = TCPStore(
        place.master_addr, place.master_port, is_master=False, timeout=timedelta(seconds=CONNECT_S)
    )
    logger.info("rank %d waits for the engine at %s", place.rank, place.master_addr)
    address, life_port = store.get(place.key(f"worker {place.rank}")).decode().split()
    trace = TraceFile.create()
    _hold_life_line(place, int(life_port), trace)
    # The server decides when to end; its end is seen on the life line.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    own = OwnView(
        model_dir=arguments.model_dir,
        config=json.loads(arguments.config),
        local_index=place.local_rank,
        num_local=place.local_world_size,
        store=store,
    )
    rank = Rank(import_s=import_s, note=noted_in(trace), own=own)
    sys.exit(WorkerProcess(rank, address=address).run())


def _hold_life_line(place: Place, port: int, trace: TraceFile) -> None:
    """Answer questions on it in a thread, and end this process with it."""
    line = keep_alive(socket.create_connection((place.master_addr, port)))
    line.sendall(LENGTH.pack(place.rank))
    threading.Thread(
        target=_answer_until_gone, args=(line, trace), name="life-line", daemon=True
    ).start()


def _answer_until_gone(line: socket.socket, trace: TraceFile) -> None:
    try:
        while question := line.recv(1):
            if question == TRACE:
                line.sendall(CLOCK.pack(time.monotonic_ns()) + trace.content())
            elif question == STACKS:
                text = _own_stacks()
                line.sendall(LENGTH.pack(len(text)) + text)
    except OSError as error:  # the other machine is gone
        logger.error("the line to the engine broke: %s", error)
    finally:
        os._exit(PARENT_GONE_STATUS)


def _own_stacks() -> bytes:
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file=file, all_threads=True)
        file.seek(0)
        return file.read()


if __name__ == "__main__":
    main()
