"""No host read, no shape that depends on data and no fresh persistent buffer, anywhere in a step
but inside `kernels/`; on a CPU a lane reads the headers of its messages, and nothing else.

What passes here can be captured in a graph as far as the runtime and the layers go. One guard sees
every operation that is dispatched, the other every call of a tensor's methods (`tolist` and `numpy`
are dispatched nowhere), and both who of ours asked for it.
"""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import draftmark
from draftmark.core.step import StepPlan
from draftmark.kernels.backends import Backends
from draftmark.models.stage import Stage
from draftmark.parallel import lanes
from draftmark.runtime import slots
from draftmark.runtime.drafting import Drafter
from draftmark.runtime.mtp import MTPDrafter
from draftmark.runtime.ngram import NgramDrafter
from draftmark.runtime.pipeline import WorkerRun
from draftmark.runtime.sampler import Sampler
from draftmark.runtime.slots import SlotTables
from tests.cpu.runtime.harness import VOCAB, Loop, make_run, make_stages, random_request

PACKAGE = Path(draftmark.__file__).parent
READS = ("_local_scalar_dense", "item", "is_nonzero", "equal", "allclose")
METHODS = ("tolist", "numpy", "item", "cpu", "__array__", "__bool__", "__int__", "__float__")
METHODS += ("__index__", "__contains__", "__iter__", "untyped_storage")
DATA_SHAPED = ("nonzero", "masked_select", "unique", "repeat_interleave.Tensor", "bincount")

# The check of a message's header, which a GPU leaves out.
HEADER_CHECK = ("parallel/lanes.py", "check")
CUTS = [((2,), "local", None), ((1, 1), "local", 30), ((1, 1, 1), "test", 30)]


class DispatchGuard(TorchDispatchMode):
    """Collects forbidden operations with the line of ours that led to them."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.seen = 0
        self.headers = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        self.seen += 1
        name = _name_of(func)
        if _is_forbidden(name, args):
            self.blame(name)
        return func(*args, **(kwargs or {}))

    def blame(self, name: str) -> None:
        place, function = _our_caller()
        if (place.partition(":")[0], function) == HEADER_CHECK:
            self.headers += 1
        elif place and not place.startswith("kernels/"):
            self.faults.append(f"{name} from {place}")


class MethodGuard(TorchFunctionMode):
    """The same for methods that read without an operation."""

    def __init__(self, guard: DispatchGuard) -> None:
        super().__init__()
        self._guard = guard

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in METHODS:
            self._guard.blame(name)
        return func(*args, **(kwargs or {}))


@cache
def _name_of(func: Any) -> str:
    return str(func).removeprefix("aten.")


def _is_forbidden(name: str, args: Any) -> bool:
    """Indexing with a boolean mask has a shape that depends on data, too."""
    if name.split(".")[0] in READS or name.startswith(DATA_SHAPED):
        return True
    if name.startswith(("index.", "index_put")):
        return any(i is not None and i.dtype == torch.bool for i in args[1])
    return False


def _our_caller() -> tuple[str, str]:
    """(`folder/file.py:line`, function) of the innermost frame in the package; "" without one."""
    frame = sys._getframe(2)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            return f"{path.relative_to(PACKAGE)}:{frame.f_lineno}", frame.f_code.co_name
        frame = frame.f_back
    return "", ""


def storages_of(run: WorkerRun) -> frozenset[int]:
    """Addresses of all storages that can be reached from the run: what outlives a step."""
    found, seen, todo = set(), set(), [run]
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, type | ModuleType | FunctionType):
            continue
        seen.add(id(thing))
        if isinstance(thing, Tensor):
            found.add(thing.untyped_storage().data_ptr())
            continue
        if isinstance(thing, MethodType):
            todo.append(thing.__self__)
        todo += gc.get_referents(thing)
    return frozenset(found)


def num_live_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())


# Pages that make a history preempt, tokens that prompts share, places of snapshots.
SIZES = {"llama": (10, 20, None), "hybrid": (16, 70, 2)}
MAX_DRAFTS = 3


def make(
    layers: tuple[int, ...],
    *,
    lanes: str,
    cohorts: int = 2,
    family: str = "llama",
    drafter: type[Drafter] | None = None,
) -> WorkerRun:
    """Staging that has grown once: ids of penalties and biases are of any number (`reserve`)."""
    with_mtp = drafter is MTPDrafter
    stages: list[Stage] = make_stages(layers, family, backends=Backends(), with_mtp=with_mtp)
    num_pages, _, num_snapshots = SIZES[family]
    run = make_run(
        *stages,
        num_pages=num_pages,
        num_slots=5,
        num_snapshots=num_snapshots or 0,
        prefill_tokens=16,
        poison=False,
        cohorts=cohorts,
        lanes=lanes,
        max_drafts=0 if drafter is None else MAX_DRAFTS,
        make_drafter=drafter,
    )
    for stage_run in run.runs:
        for entry in stage_run._ring._entries:
            entry.reserve(20_000)
    return run


def guarded_history(
    layers: tuple[int, ...] = (2,),
    lanes: str = "local",
    *,
    cohorts: int = 2,
    num_steps: int | None = None,
    family: str = "llama",
    drafter: type[Drafter] | None = None,
) -> DispatchGuard:
    """Every kind of row: random parameters, chunks, hits, preemption, log-probabilities; or only
    the first `num_steps` steps. Also checks that nothing is left behind by a step."""
    rng = random.Random(2)
    run = make(layers, lanes=lanes, cohorts=cohorts, family=family, drafter=drafter)
    num_pages, num_shared, num_snapshots = SIZES[family]
    guard = DispatchGuard()
    launch, kept = run.launch, storages_of(run)

    def launch_guarded(plan: StepPlan) -> Any:
        with ExitStack() as stack:
            stack.enter_context(guard)
            stack.enter_context(MethodGuard(guard))
            pending = launch(plan)
        if plan.step % 4 < 2:
            assert storages_of(run) == kept, f"step {plan.step} left a buffer behind, or lost one"
        return pending

    run.launch = launch_guarded  # type: ignore[method-assign]
    loop = Loop(
        run,
        num_pages=num_pages,
        num_slots=5,
        num_snapshots=num_snapshots,
        prefill_tokens=16,
        cohorts=cohorts,
        depth=cohorts + 1,
        max_drafts=0 if drafter is None else MAX_DRAFTS,
        drafts_from_ids=drafter is NgramDrafter,
    )
    prefixes = [[rng.randrange(VOCAB) for _ in range(num_shared)]]
    requests = [
        random_request(
            i,
            rng,
            prefixes=prefixes,
            is_hungry=i < 3,
            logprobs=i % 3,
            prompt_logprobs=2 if i == 5 else None,
        )
        for i in range(6)
    ]
    loop.add(*requests)
    if num_steps is None:
        loop.finish()
        assert loop.scheduler.stats().preemptions > 0
        assert guard.seen > 1000
    else:
        for _ in range(num_steps):
            loop.step()
    run.close()
    return guard


@pytest.mark.parametrize(("layers", "lanes", "num_steps"), CUTS, ids=str)
def test_a_step_reads_nothing_back(
    layers: tuple[int, ...], lanes: str, num_steps: int | None
) -> None:
    """But headers: of each return, and of each step between two stages."""
    guard = guarded_history(layers, lanes, num_steps=num_steps)
    assert guard.faults == []
    assert guard.headers > 0


def test_drafts_that_are_looked_up_read_nothing_back() -> None:
    guard = guarded_history((1, 1), "test", num_steps=30, drafter=NgramDrafter)
    assert guard.faults == []


@pytest.mark.parametrize(
    ("layers", "family"), [((2,), "llama"), ((1, 1), "llama"), ((3,), "hybrid")], ids=str
)
def test_drafts_of_a_head_read_nothing_back(layers: tuple[int, ...], family: str) -> None:
    """Nor do their windows."""
    lanes = "test" if len(layers) > 1 else "local"
    guard = guarded_history(layers, lanes, num_steps=40, family=family, drafter=MTPDrafter)
    assert guard.faults == []


@pytest.mark.slow
@pytest.mark.parametrize("layers", [(3,), (1, 2)], ids=str)
def test_a_step_of_a_hybrid_reads_nothing_back(layers: tuple[int, ...]) -> None:
    """Snapshots and restores included."""
    guard = guarded_history(layers, "test" if len(layers) > 1 else "local", family="hybrid")
    assert guard.faults == []


def test_without_checks_headers_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: the exemption above is of that check and of nothing else in a lane."""
    original = lanes.make_lane
    monkeypatch.setattr(
        "draftmark.runtime.pipeline.make_lane",
        lambda format, **options: original(format, **{**options, "checks": False}),
    )
    guard = guarded_history((1, 1), "test", num_steps=30)
    assert guard.faults == [] and guard.headers == 0


@pytest.mark.slow
def test_what_lives_after_a_history_lived_before_it() -> None:
    """Beyond what can be reached from the run: caches, globals, cycles."""
    guarded_history((1, 1), num_steps=20)
    before = num_live_tensors()
    guarded_history((1, 1), num_steps=40)
    assert num_live_tensors() == before


# -- planted faults -------------------------------------------------------------------------------

SOURCES = {
    "item": "def fault(self): return self.state[0, 0].item()",
    "tolist": "def fault(self): return self.state[0].tolist()",
    "numpy": "def fault(self): return self.state.numpy()",
    "bool": "def fault(self): return 1 if self.state[0, 0] > 0 else 2",
    "index": "def fault(self): return [7][self.faults]",
    "mask": "def fault(self): return self.state[self.state > 0]",
    "nonzero": "def fault(self): return self.state.nonzero()",
}


def plant(source: str, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the head of every step, compiled as if it stood in the package: the guard looks at file
    names."""
    scope: dict[str, Any] = {}
    exec(compile(source, str(PACKAGE / file), "exec"), scope)
    original = slots.SlotState.rows

    def rows(self: slots.SlotState, *args: Any, **options: Any) -> Any:
        scope["fault"](self)
        return original(self, *args, **options)

    monkeypatch.setattr(slots.SlotState, "rows", rows)


@pytest.mark.parametrize("kind", SOURCES)
def test_the_guard_sees_planted_reads(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(SOURCES[kind], "runtime/planted.py", monkeypatch)
    faults = guarded_history(num_steps=8).faults
    assert faults and all("runtime/planted.py:1" in fault for fault in faults)


@pytest.mark.parametrize(
    ("owner", "name", "read"),
    [
        (MTPDrafter, "_extend", "args[1].last.tolist()"),
        (MTPDrafter, "_entries", "args[1].max().item()"),
        (Sampler, "_emitted", "args[1].drafted.numpy()"),
        (Sampler, "_emitted", "args[2][args[3]]"),
        (SlotTables, "batch", "args[2].nonzero()"),
    ],
)
def test_the_guard_sees_reads_planted_in_drafts_and_windows(
    owner: type, name: str, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope: dict[str, Any] = {"inner": getattr(owner, name)}
    source = f"def planted(self, *args, **options): {read}; return inner(self, *args, **options)"
    exec(compile(source, str(PACKAGE / "runtime/planted.py"), "exec"), scope)
    monkeypatch.setattr(owner, name, scope["planted"])
    faults = guarded_history(num_steps=8, drafter=MTPDrafter).faults
    assert faults and all("runtime/planted.py:1" in fault for fault in faults)


def test_the_guard_sees_a_read_in_a_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the check of a header may read."""
    source = "def release(self): self._held[0].words.tolist(); inner(self)"
    scope: dict[str, Any] = {"inner": lanes.WiredInlet.release}
    exec(compile(source, str(PACKAGE / "parallel" / "lanes.py"), "exec"), scope)
    monkeypatch.setattr(lanes.WiredInlet, "release", scope["release"])
    faults = guarded_history((1, 1), "test", num_steps=8).faults
    assert faults and all(fault == "tolist from parallel/lanes.py:1" for fault in faults)


@pytest.fixture(params=["kept", "replaced", "added", "global"])
def left_behind(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


KEPT: list[Tensor] = []


@pytest.mark.slow
def test_a_buffer_that_outlives_its_step_is_seen(
    left_behind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is kept, one in the place of another, one of a lane, one that only the process
    holds."""
    original = slots.SlotState.rows

    def rows(self: slots.SlotState, *args: Any, **options: Any) -> Any:
        match left_behind:
            case "kept":
                self.kept = self.state + 1  # type: ignore[attr-defined]
            case "replaced":
                self.state = self.state.clone()
            case "global":
                KEPT.append(self.state + 1)
        return original(self, *args, **options)

    monkeypatch.setattr(slots.SlotState, "rows", rows)
    if left_behind == "added":
        open_buffer = lanes.LocalLane.open

        def open_fresh(self: lanes.LocalLane, shape: lanes.Shape) -> lanes.Parcel:
            place = torch.empty(self.format.max_bytes, dtype=torch.uint8)
            buffer = lanes._Buffer(self.format, place)
            buffer.stamp()
            self._free.appendleft(buffer)
            return open_buffer(self, shape)

        monkeypatch.setattr(lanes.LocalLane, "open", open_fresh)
    if left_behind == "global":
        before = num_live_tensors()
        guarded_history(num_steps=20)
        assert num_live_tensors() > before + 15
        KEPT.clear()
    else:
        with pytest.raises(AssertionError, match="left a buffer behind"):
            guarded_history(num_steps=20)
