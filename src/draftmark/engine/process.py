"""The engine process: `python -m draftmark.engine.process --address ipc://... --parent-fd N`.

Started by the API process, starts the worker, runs the loop. Ends with status 0 when drained, 1
when it failed (the reason sent first), and at once when its parent is gone.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import logging
import os
import signal
import sys
from types import FrameType

import zmq

from draftmark.core.faults import failure_from
from draftmark.core.messages import EngineState
from draftmark.core.parent import watch_parent
from draftmark.core.resolve import count_workers
from draftmark.engine.channel import Channel, EngineInit, ToEngineProcess, decode_to_engine
from draftmark.engine.engine import Engine, make_engine
from draftmark.engine.launch import Addresses, end_now
from draftmark.engine.logs import log_as_child
from draftmark.engine.stacks import StackReports
from draftmark.engine.startup import start_workers
from draftmark.engine.workers import Workers

logger = logging.getLogger("draftmark.engine.process")  # here __name__ is __main__

_FLUSH_S = 2.0


class EngineMain:
    """One life of the engine process. `status` is its exit status."""

    def __init__(self, *, address: str, parent_fd: int) -> None:
        self.status = 0
        self._addresses = Addresses.beside(address)
        self._worker_pids: list[int] = []
        self._workers: Workers | None = None
        self._reports: StackReports | None = None
        self._is_serving = False
        watch_parent(parent_fd, cleanup=end_now(self._worker_pids, addresses=self._addresses))
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._client: Channel[ToEngineProcess] = Channel.connect(
            self._context, address=address, decode=decode_to_engine
        )
        signal.signal(signal.SIGUSR1, self._write_stacks)
        # After the handler above, and chained to it: where that one cannot run any more, our own
        # stacks are in the log.
        faulthandler.register(signal.SIGUSR1, all_threads=True, chain=True)

    def run(self) -> None:
        try:
            self._start().run()
        except Exception as error:
            # Process edge: the reason goes to the client, which ends every request with it.
            self.status = 1
            self._client.send(failure_from(error))
            logger.error("the engine ends: %s", error)
            if self._workers is not None:
                self._end_workers(self._workers, reason=str(error))
        else:
            assert self._workers is not None and self._reports is not None
            self._reports.close()
            self._workers.stop()
        self._addresses.remove()
        self._client.close(flush_s=_FLUSH_S)
        self._context.destroy(linger=0)

    def _start(self) -> Engine:
        self._client.send(EngineState("loading", "starting the engine"))
        self._client.socket.poll()
        init = self._client.receive()
        assert isinstance(init, EngineInit), "the first message must be EngineInit"
        phase = "starting the engine"

        def beat() -> None:
            self._client.send(EngineState("loading", phase))

        def say(next_phase: str) -> None:
            nonlocal phase
            phase = next_phase
            logger.info("%s", phase)
            beat()

        self._workers = Workers(
            self._context,
            count=count_workers(init.declared.config),
            arguments=init.worker,
            addresses=self._addresses,
            limit_s=init.declared.config.debug.step_timeout_s,
            place=init.place,
        )
        self._reports = StackReports(self._workers, start_id=init.start_id)
        self._worker_pids += self._workers.pids
        pids: dict[str, object] = {"worker_pids": self._worker_pids}
        self._client.send(EngineState("loading", phase, pids))
        started = start_workers(self._workers, init, say=say, beat=beat)
        self._addresses.remove()  # both sides are connected: names are of no more use
        logger.info("memory budget\n%s", started.budget.explain())
        engine = make_engine(
            started, workers=self._workers, client=self._client, reports=self._reports
        )
        gc.collect()
        gc.freeze()  # what a start made stays: later collections need not look at it
        record = {**started.record, "engine_pid": os.getpid(), **pids}
        self._client.send(EngineState("ready", ready=record))
        self._is_serving = True
        return engine

    def _end_workers(self, workers: Workers, *, reason: str) -> None:
        """Whatever state they are in; what they were doing goes to a file if they were serving."""
        if self._reports is not None:
            if self._is_serving:
                self._reports.write(reason)
            self._reports.close()
        workers.end()

    def _write_stacks(self, signum: int, frame: FrameType | None) -> None:
        if self._reports is not None:
            self._reports.begin_file("asked for by SIGUSR1")


def main() -> None:
    parser = argparse.ArgumentParser(prog="draftmark.engine.process")
    parser.add_argument("--address", required=True)
    parser.add_argument("--parent-fd", type=int, required=True)
    arguments = parser.parse_args()
    log_as_child()
    faulthandler.enable()
    # The API process decides when to end: a service manager signals every process of a group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    process = EngineMain(address=arguments.address, parent_fd=arguments.parent_fd)
    process.run()
    sys.exit(process.status)


if __name__ == "__main__":
    main()
