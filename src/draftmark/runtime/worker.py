"""The worker process: `python -m draftmark.runtime.worker --address ipc://... --parent-fd N`.

`--trace-fd` names the file in which it notes what it is at, `--stacks-fd` the one to which SIGUSR1
makes it write the stacks of all its threads.

Three threads, none of which spins. The main thread answers the start conversation, then only
enqueues steps. The result thread waits for each step's event, reads the result and encodes it. The
socket belongs to the carrier, because a zmq socket may be used by one thread only; it takes plans
in while a step runs, and results out.

Ends with status 0 when told to stop, 1 after a failure (the reason sent first), and at once when
the parent is gone.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import logging
import signal
import sys
import threading
import time
from queue import SimpleQueue

import msgspec
import psutil
import zmq

from draftmark.core.faults import failure_from
from draftmark.core.parent import watch_parent
from draftmark.core.start import (
    AllocatePools,
    DescribeWeights,
    EndWarmUp,
    FromWorkerStart,
    Join,
    LoadWeights,
    MeasureLayers,
    PrepareWarmUp,
    ReportBusy,
    Stop,
    ToWorkerStart,
    WorkerInit,
    is_start_message,
)
from draftmark.core.step import StepPlan
from draftmark.core.trace import Operation, TraceFile
from draftmark.runtime.pipeline import NoteStage, WorkerPending
from draftmark.runtime.rank import Rank

logger = logging.getLogger("draftmark.runtime.worker")  # here __name__ is __main__

_OUTBOX = "inproc://outbox"
_CLOSE = b""
_FLUSH_MS = 2000

_Context = zmq.Context[zmq.Socket[bytes]]


class Carrier(threading.Thread):
    """Owns the socket to the engine: puts what arrives into `inbox`, sends what the outbox gets."""

    def __init__(self, context: _Context, *, address: str, inbox: SimpleQueue[bytes]) -> None:
        super().__init__(name="carrier", daemon=True)
        self._inbox = inbox
        self._socket = context.socket(zmq.PAIR)
        self._socket.set(zmq.SNDHWM, 0)
        self._socket.set(zmq.RCVHWM, 0)
        self._socket.set(zmq.LINGER, _FLUSH_MS)
        self._socket.connect(address)
        self._outbox = context.socket(zmq.PULL)
        self._outbox.bind(_OUTBOX)

    def run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._outbox, zmq.POLLIN)
        data = None
        while data != _CLOSE:
            for socket, _ in poller.poll():
                if socket is self._socket:
                    self._inbox.put(self._socket.recv())
                elif (data := self._outbox.recv()) != _CLOSE:
                    self._socket.send(data)
        self._outbox.close(linger=0)
        self._socket.close()


class WorkerProcess:
    """One life of the worker. `rank` does the work."""

    def __init__(self, rank: Rank, *, address: str) -> None:
        self._rank = rank
        self._context: _Context = zmq.Context()
        self._inbox: SimpleQueue[bytes] = SimpleQueue()
        self._pending: SimpleQueue[WorkerPending | ReportBusy | None] = SimpleQueue()
        self._encode = msgspec.msgpack.Encoder().encode
        self._failure: Exception | None = None
        self._carrier = Carrier(self._context, address=address, inbox=self._inbox)
        # Used by one thread at a time: ours until serving, then the result thread's until it ends.
        self._out = self._context.socket(zmq.PUSH)
        self._out.connect(_OUTBOX)
        self._results = threading.Thread(target=self._send_results, name="results", daemon=True)

    def run(self) -> int:
        """The exit status."""
        self._carrier.start()
        try:
            self._serve()
            status = 0
        except Exception as error:
            # Process edge: the engine gets the reason and ends every request with it.
            self._end_results()
            self._out.send(self._encode(failure_from(error)))
            logger.error("the worker ends: %s", error)
            status = 1
        self._end_results()
        self._out.send(_CLOSE)
        self._carrier.join()
        self._out.close()
        self._context.term()
        if status == 0:
            self._rank.close()
        return status

    def _serve(self) -> None:
        decode_start = msgspec.msgpack.Decoder(ToWorkerStart).decode
        decode_plan = msgspec.msgpack.Decoder(StepPlan).decode
        while data := self._inbox.get():
            if not is_start_message(data):
                self._pending.put(self._rank.launch(decode_plan(data)))
                continue
            message = decode_start(data)
            if isinstance(message, Stop):
                return
            if isinstance(message, ReportBusy):
                # Of all steps before it, and the result thread may be sending.
                self._pending.put(message)
                continue
            self._out.send(self._encode(self._answer(message)))
            if isinstance(message, AllocatePools):
                self._results.start()
        assert self._failure is not None
        raise self._failure

    def _answer(self, message: ToWorkerStart) -> FromWorkerStart:
        match message:
            case WorkerInit():
                return self._rank.hello(message)
            case DescribeWeights():
                return self._rank.describe(message.load)
            case MeasureLayers():
                return self._rank.measure(message)
            case Join():
                return self._rank.join(message)
            case LoadWeights():
                return self._rank.load(message)
            case AllocatePools():
                return self._rank.allocate(message)
            case PrepareWarmUp():
                return self._rank.prepare_warm_up(message)
            case EndWarmUp():
                ended = self._rank.end_warm_up()
                gc.collect()
                gc.freeze()  # what a start made stays: later collections need not look at it
                return ended
        raise AssertionError(f"unexpected {message}")

    def _send_results(self) -> None:
        while (pending := self._pending.get()) is not None:
            if isinstance(pending, ReportBusy):
                self._out.send(self._encode(self._rank.report_busy()))
                continue
            try:
                result = pending.result()
            except Exception as error:
                # Thread edge: an error of the device surfaces here; the main thread raises it.
                self._failure = error
                self._inbox.put(_CLOSE)
                return
            if result is not None:
                self._out.send(self._encode(result))

    def _end_results(self) -> None:
        """Let the result thread send what it has, and end."""
        if self._results.is_alive():
            self._pending.put(None)
            self._results.join()


def noted_in(trace: TraceFile) -> NoteStage:
    """Writes to `trace` what each stage is at."""

    def note(index: int, step: int, cohort: int, operation: Operation, lane: int) -> None:
        trace.write(index, step=step, cohort=cohort, operation=operation, lane=lane)

    return note


def main() -> None:
    parser = argparse.ArgumentParser(prog="draftmark.runtime.worker")
    parser.add_argument("--address", required=True)
    parser.add_argument("--parent-fd", type=int, required=True)
    parser.add_argument("--trace-fd", type=int, required=True)
    parser.add_argument("--stacks-fd", type=int, required=True)
    arguments = parser.parse_args()
    watch_parent(arguments.parent_fd)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, file=arguments.stacks_fd, all_threads=True)
    # The API process decides when to end: a service manager signals every process of a group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    import_s = time.time() - psutil.Process().create_time()
    rank = Rank(import_s=import_s, note=noted_in(TraceFile(arguments.trace_fd)))
    sys.exit(WorkerProcess(rank, address=arguments.address).run())


if __name__ == "__main__":
    main()
