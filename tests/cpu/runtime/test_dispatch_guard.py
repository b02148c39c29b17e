"""No host read and no shape that depends on data, anywhere in a step but inside `kernels/`.

What passes here can be captured in a graph as far as the runtime and the layers go. The guard sees
every operation that is dispatched, and who of ours asked for it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import draftmark
from draftmark.core.step import StepPlan
from draftmark.kernels.backends import Backends
from draftmark.models.stage import Stage
from draftmark.runtime import slots
from tests.cpu.runtime.harness import VOCAB, Loop, make_run, make_stage, random_request

PACKAGE = Path(draftmark.__file__).parent
READS = ("_local_scalar_dense", "item", "is_nonzero", "equal", "allclose")
DATA_SHAPED = ("nonzero", "masked_select", "unique", "repeat_interleave.Tensor", "bincount")


class DispatchGuard(TorchDispatchMode):
    """Collects forbidden operations with the line of ours that led to them."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.seen = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        self.seen += 1
        name = str(func).removeprefix("aten.")
        if _is_forbidden(name, args):
            caller = _our_caller()
            if caller is not None and not caller.startswith("kernels/"):
                self.faults.append(f"{name} from {caller}")
        return func(*args, **(kwargs or {}))


def _is_forbidden(name: str, args: Any) -> bool:
    """Indexing with a boolean mask has a shape that depends on data, too."""
    if name.split(".")[0] in READS or name.startswith(DATA_SHAPED):
        return True
    if name.startswith(("index.", "index_put")):
        return any(i is not None and i.dtype == torch.bool for i in args[1])
    return False


def _our_caller() -> str | None:
    """`folder/file.py:line` of the innermost frame in the package."""
    frame = sys._getframe(2)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            return f"{path.relative_to(PACKAGE)}:{frame.f_lineno}"
        frame = frame.f_back
    return None


@pytest.fixture(scope="module")
def stage() -> Stage:
    return make_stage("llama", backends=Backends())


def guarded_history(stage: Stage) -> DispatchGuard:
    """Every kind of row: random parameters, chunks, hits, preemption, log-probabilities."""
    rng = random.Random(2)
    run = make_run(stage, num_pages=10, num_slots=5, prefill_tokens=16, poison=False)
    guard = DispatchGuard()
    launch = run.launch

    def launch_guarded(plan: StepPlan) -> Any:
        with guard:
            return launch(plan)

    run.launch = launch_guarded  # type: ignore[method-assign]
    loop = Loop(run, num_pages=10, num_slots=5, prefill_tokens=16)
    prefixes = [[rng.randrange(VOCAB) for _ in range(20)]]
    requests = [
        random_request(i, rng, prefixes=prefixes, is_hungry=i < 4, logprobs=i % 3) for i in range(9)
    ]
    loop.add(*requests)
    loop.finish()
    assert loop.scheduler.stats().preemptions > 0
    assert guard.seen > 1000
    return guard


def test_a_step_reads_nothing_back(stage: Stage) -> None:
    assert guarded_history(stage).faults == []


@pytest.fixture(params=["item", "mask", "nonzero"])
def planted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A host read, and two shapes that depend on data, at the head of every step. They are
    compiled as if they stood in the package: the guard looks at file names."""
    source = {
        "item": "def fault(state): return state[0, 0].item()",
        "mask": "def fault(state): return state[state > 0]",
        "nonzero": "def fault(state): return state.nonzero()",
    }[request.param]
    scope: dict[str, Any] = {}
    exec(compile(source, str(PACKAGE / "runtime" / "planted.py"), "exec"), scope)
    original = slots.SlotState.rows

    def rows(self: slots.SlotState, *args: Any) -> Any:
        scope["fault"](self.state)
        return original(self, *args)

    monkeypatch.setattr(slots.SlotState, "rows", rows)
    yield request.param


def test_the_guard_sees_planted_reads(stage: Stage, planted: str) -> None:
    faults = guarded_history(stage).faults
    assert faults and all("runtime/planted.py:1" in fault for fault in faults), planted
