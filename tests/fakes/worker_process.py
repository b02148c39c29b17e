"""A worker process without torch: leads the start conversation and runs `FakeWorker`.

    python tests/fakes/worker_process.py --address ipc://... --parent-fd N [faults]

It speaks the protocol of `draftmark.runtime.worker`, so the real engine process runs on top of it.
Of several, each computes whole steps and the last stage's tells; there are no lanes between them.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import signal
import sys
import time
from pathlib import Path

import msgspec
import zmq

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from draftmark.cache.spec import AttentionSpec, encode_specs  # noqa: E402
from draftmark.core.parent import watch_parent  # noqa: E402
from draftmark.core.start import (  # noqa: E402
    AllocatePools,
    BusyReport,
    DescribeWeights,
    DeviceFacts,
    EndWarmUp,
    Join,
    Joined,
    LoadWeights,
    ModelFacts,
    PrepareWarmUp,
    ReportBusy,
    Stop,
    ToWorkerStart,
    WeightsLoaded,
    WorkerFailed,
    WorkerHello,
    WorkerInit,
    WorkerReady,
    is_start_message,
)
from draftmark.core.step import StepPlan, StepResult  # noqa: E402
from draftmark.core.topology import Topology  # noqa: E402
from draftmark.core.trace import Operation, TraceFile  # noqa: E402
from draftmark.engine.logs import log_as_child  # noqa: E402
from tests.fakes.worker import FakeWorker  # noqa: E402

logger = logging.getLogger("fake_worker")

MIB = 1 << 20
VOCAB_SIZE = 264  # of the tokenizer in tests.fakes.tokenizer


def command(**faults: object) -> list[str]:
    """Arguments to Python that start this worker; `crash_step=3` is `--crash-step 3`."""
    arguments = [str(Path(__file__))]
    for name, value in faults.items():
        arguments += [f"--{name.replace('_', '-')}", str(value)]
    return arguments


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--parent-fd", type=int, required=True)
    parser.add_argument("--trace-fd", type=int, required=True)
    parser.add_argument("--stacks-fd", type=int, required=True)
    parser.add_argument("--vocab-size", type=int, default=VOCAB_SIZE)
    parser.add_argument("--max-context", type=int, default=512)
    parser.add_argument("--free-mib", type=int, default=64)
    parser.add_argument("--eos-id", type=int, action="append", default=[])
    parser.add_argument("--step-ms", type=float, default=0.0, help="time of a step")
    parser.add_argument("--connect-after", type=float, default=0.0, help="seconds of importing")
    parser.add_argument("--crash-step", type=int, default=-1, help="raise in this step")
    parser.add_argument("--kill-step", type=int, default=-1, help="die by SIGKILL in this step")
    parser.add_argument("--hang-step", type=int, default=-1, help="never finish this step")
    parser.add_argument("--bad-step", type=int, default=-1, help="a non-finite value in this step")
    parser.add_argument("--die-in", default="", help="a phase: exit there")
    parser.add_argument("--hang-in", default="", help="a phase: never answer")
    parser.add_argument("--refuse-in", default="", help="phase:ErrorClass:message")
    parser.add_argument("--reorder", type=int, default=-1, help="this worker joins backwards")
    parser.add_argument("--version", default="1", help="what worker --only, or every one, runs")
    parser.add_argument("--only", type=int, default=-1, help="the worker that has the faults")
    return parser.parse_args()


# Names of phases, for the faults in them.
PHASES = {WorkerInit: "init", Join: "join", LoadWeights: "load", AllocatePools: "allocate"}


class WorkerProcess:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._encode = msgspec.msgpack.Encoder().encode
        self._trace = TraceFile(arguments.trace_fd)
        self._topology = Topology()
        self._number = 0
        self._worker: FakeWorker | None = None
        self._load: LoadWeights | None = None
        self._pools: AllocatePools | None = None
        self._is_serving = False
        self._busy_us = 0

    def serve(self) -> None:
        with zmq.Context() as context, context.socket(zmq.PAIR) as socket:
            socket.connect(self._arguments.address)
            decode_start = msgspec.msgpack.Decoder(ToWorkerStart).decode
            decode_plan = msgspec.msgpack.Decoder(StepPlan).decode
            while True:
                data = socket.recv()
                if not is_start_message(data):
                    result = self._run(decode_plan(data))
                    if self._number == self._topology.result_worker:
                        socket.send(result)
                    continue
                message = decode_start(data)
                if isinstance(message, Stop):
                    return
                answer = self._answer(message)
                socket.send(self._encode(answer))
                if isinstance(answer, WorkerFailed):
                    return

    def _answer(self, message: ToWorkerStart) -> object:
        arguments = self._arguments
        if isinstance(message, WorkerInit):
            self._number = message.worker
        phase = PHASES.get(type(message), "") if self._has_faults else ""
        if phase and arguments.die_in == phase:
            logger.error("dying in %s", phase)
            os._exit(9)
        if phase and arguments.hang_in == phase:
            hang()
        where, _, refusal = arguments.refuse_in.partition(":")
        if phase and where == phase:
            kind, _, text = refusal.partition(":")
            return WorkerFailed(kind=kind, message=text)
        match message:
            case WorkerInit():
                version = arguments.version if self._has_faults else "1"
                return WorkerHello(self._model(), self._device(), versions={"draftmark": version})
            case LoadWeights():
                self._load = message
                return self._loaded()
            case DescribeWeights():
                return self._loaded()
            case Join():
                return self._joined(message.topology)
            case AllocatePools():
                self._pools = message
                self._renew()
                return WorkerReady(seconds={"pools": 0.01}, pool_bytes=0)
            case EndWarmUp():
                self._renew()
                self._is_serving = True
                return self._busy()
            case PrepareWarmUp() | ReportBusy():
                return self._busy()
        raise AssertionError(f"unexpected {message}")

    @property
    def _has_faults(self) -> bool:
        return self._arguments.only in (-1, self._number)

    def _joined(self, topology: Topology) -> Joined:
        self._topology = topology
        names = [name for name, members in topology.communicators() if self._number in members]
        return Joined(names[::-1] if self._number == self._arguments.reorder else names, 0.01)

    def _busy(self) -> BusyReport:
        return BusyReport([self._busy_us for _ in self._topology.stages_of(self._number)])

    def _renew(self) -> None:
        assert self._pools is not None and self._load is not None
        self._worker = FakeWorker(
            num_pages=self._pools.num_pages,
            num_slots=self._pools.num_slots,
            max_context=self._pools.max_context,
            vocab_size=self._arguments.vocab_size,
            strict=self._is_serving,  # the plans of a warm-up share pages
            poison=self._is_serving,
            num_cohorts=self._topology.cohorts,
            max_drafts=self._load.max_drafts,
            drafts_from_ids=self._load.draft == "ngram",
        )

    def _model(self) -> ModelFacts:
        return ModelFacts(
            model_type="fake",
            architecture="FakeForCausalLM",
            num_layers=2,
            vocab_size=self._arguments.vocab_size,
            max_context=self._arguments.max_context,
            dtype="float32",
            eos_ids=tuple(self._arguments.eos_id),
            num_parameters=1000,
            checkpoint_bytes=4000,
        )

    def _device(self) -> DeviceFacts:
        free = self._arguments.free_mib * MIB
        return DeviceFacts(
            kind="cpu",
            name="fake cpu",
            domain="fake",
            total_bytes=2 * free,
            free_bytes=free,
            threads=1,
        )

    def _loaded(self) -> WeightsLoaded:
        specs = [AttentionSpec(layer=i, kv_heads=1, head_dim=64, dtype_bytes=4) for i in range(2)]
        return WeightsLoaded(
            cache_specs=encode_specs(specs),
            weight_bytes=4000,
            free_bytes=self._arguments.free_mib * MIB,
            fixed_bytes_per_slot=1000,
            workspace_bytes=10_000,
            seconds={"weights": 0.01},
            backends={"attention": "fake"},
        )

    def _run(self, plan: StepPlan) -> bytes:
        assert self._worker is not None
        self._note(plan, Operation.COMPUTE)
        if not self._is_serving:
            result = self._worker.execute(plan)
        else:
            began = time.monotonic()
            result = self._worker.execute(plan)
            if self._has_faults:
                result = self._with_faults(plan, result)
            time.sleep(self._arguments.step_ms / 1000)
            run_us = int((time.monotonic() - began) * 1e6)
            self._busy_us += run_us
            result = msgspec.structs.replace(result, run_us=run_us)
        self._note(plan, Operation.IDLE)
        return self._encode(result)

    def _with_faults(self, plan: StepPlan, result: StepResult) -> StepResult:
        """What the arguments say happens in this step."""
        arguments = self._arguments
        if plan.step == arguments.crash_step:
            raise RuntimeError("the fake worker was told to crash")
        if plan.step == arguments.kill_step:
            os.kill(os.getpid(), signal.SIGKILL)
        if plan.step == arguments.hang_step:
            hang()
        if plan.step == arguments.bad_step:
            rows = [msgspec.structs.replace(row, bad_layer=1, emitted=[]) for row in result.rows]
            result = msgspec.structs.replace(result, rows=rows)
        return result

    def _note(self, plan: StepPlan, operation: Operation) -> None:
        for index, _ in enumerate(self._topology.stages_of(self._number)):
            self._trace.write(index, step=plan.step, cohort=plan.cohort, operation=operation)


def hang() -> None:
    """Where stacks show the hang."""
    time.sleep(600)


def main() -> None:
    arguments = _parse()
    log_as_child()
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, file=arguments.stacks_fd, all_threads=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    watch_parent(arguments.parent_fd)
    time.sleep(arguments.connect_after)
    WorkerProcess(arguments).serve()


if __name__ == "__main__":
    main()
