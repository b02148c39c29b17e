"""Executes a recorded run again: freely, or with the recorded tokens imposed.

Free: the plans run as they were recorded, and the first result that differs is named. After it
nothing can be compared, because a slot's own token is the next step's input.
Forced: every row takes the recorded token whatever this run would choose, so that all steps can be
compared: where the choices differ, by how much the logits do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from draftmark.core.errors import ConfigError, NotBuilt
from draftmark.core.recording import RecordingHeader, open_recording
from draftmark.core.step import ResultRow, StepPlan, StepResult
from draftmark.core.topology import Topology
from draftmark.runtime.rank import Rank
from draftmark.runtime.sampler import Override


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The first row that is not what was recorded; `what` names the field."""

    step: int
    slot: int
    generation: int
    what: str
    expected: str
    got: str

    def __str__(self) -> str:
        return (
            f"step {self.step}, slot {self.slot} (generation {self.generation}): {self.what} "
            f"was {self.expected}, is {self.got}"
        )


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """In a forced step: rows that would have chosen another token, and the largest difference
    between the logits of the own and the recorded token, with its slot."""

    step: int
    rows: int
    largest: float
    slot: int


class RerunReport(msgspec.Struct, frozen=True, kw_only=True):
    """`unanswered` plans have no result in the file; a free run executes them too, so that a
    recorded crash comes again. `gaps` lists the forced steps in which a row chose otherwise."""

    forced: bool
    steps: int
    tokens: int
    unanswered: int
    divergence: Divergence | None = None
    gaps: list[Gap] = []

    @property
    def largest_gap(self) -> float:
        return max((gap.largest for gap in self.gaps), default=0.0)


def rerun(
    path: Path, *, forced: bool, stages: Sequence[int] = (), lanes: str = "local"
) -> RerunReport:
    """Load what the recording names and run it, all stages in this process: those of the recording,
    or of as many layers as `stages` says. The number of cohorts is the recording's: how a plan is
    cut into stages does not change what it gives. Raises `ConfigError` for a file that is no
    recording, and what loading raises."""
    recording = open_recording(path)
    if forced and recording.header.load.max_drafts:
        raise NotBuilt("rerun --forced is not built yet for recordings with drafts")
    rank = _start(recording.header, stages=tuple(stages), lanes=lanes)
    if forced:
        return _rerun_forced(rank, recording.steps)
    return _rerun_free(rank, recording.steps)


def _start(header: RecordingHeader, *, stages: tuple[int, ...], lanes: str) -> Rank:
    recorded = header.load.topology
    stages = stages or recorded.stages
    if sum(stages) != sum(recorded.stages):
        raise ConfigError(
            f"--stages add up to {sum(stages)} layers, the recorded model has "
            f"{sum(recorded.stages)}",
            param="stages",
        )
    topology = Topology(
        stages=stages, cohorts=recorded.cohorts, lanes=lanes, stages_per_worker=len(stages)
    )
    rank = Rank()
    rank.hello(msgspec.structs.replace(header.init, num_workers=1, num_local=1))
    rank.load(msgspec.structs.replace(header.load, topology=topology))
    rank.allocate(header.pools)
    return rank


def _result(rank: Rank, plan: StepPlan, *, override: Override | None = None) -> StepResult:
    result = rank.launch(plan, override=override).result()
    assert result is not None, "the last stage is here"
    return result


def _rerun_free(rank: Rank, lines: Iterator[StepPlan | StepResult]) -> RerunReport:
    own: dict[int, StepResult] = {}
    steps = tokens = 0
    divergence = None
    for line in lines:
        if isinstance(line, StepPlan):
            own[line.step] = _result(rank, line)
            steps += 1
            continue
        tokens += _num_tokens(line)
        divergence = find_divergence(line, own.pop(line.step))
        if divergence is not None:
            break
    return RerunReport(
        forced=False, steps=steps, tokens=tokens, unanswered=len(own), divergence=divergence
    )


def _rerun_forced(rank: Rank, lines: Iterator[StepPlan | StepResult]) -> RerunReport:
    """A plan waits for its recorded result, which names the tokens to take."""
    plans: dict[int, StepPlan] = {}
    steps = tokens = 0
    divergence = None
    gaps: list[Gap] = []
    for line in lines:
        if isinstance(line, StepPlan):
            plans[line.step] = line
            continue
        imposed = _Imposed(line)
        result = _result(rank, plans.pop(line.step), override=imposed)
        steps += 1
        tokens += _num_tokens(line)
        gaps += imposed.gaps
        divergence = find_divergence(line, result)
        if divergence is not None:
            break
    return RerunReport(
        forced=True,
        steps=steps,
        tokens=tokens,
        unanswered=len(plans),
        divergence=divergence,
        gaps=gaps,
    )


class _Imposed:
    """The recorded tokens of one step, given to the sampler; notes where it would differ."""

    def __init__(self, recorded: StepResult) -> None:
        self.gaps: list[Gap] = []
        self._recorded = recorded

    def __call__(self, logits: Tensor, own: Tensor) -> Tensor:
        rows = self._recorded.rows
        emits = [bool(row.emitted) for row in rows]
        named = [row.emitted[0] if row.emitted else 0 for row in rows]
        active = torch.tensor(emits, device=own.device)
        taken = torch.where(active, torch.tensor(named, device=own.device), own)
        differs = taken != own
        gap = logits.gather(1, own[:, None]) - logits.gather(1, taken[:, None])
        sizes = gap[:, 0].double().abs().masked_fill(~differs, -1.0)
        if differs.any():
            largest, row = sizes.max(0)
            self.gaps.append(
                Gap(
                    step=self._recorded.step,
                    rows=int(differs.sum()),
                    largest=float(largest),
                    slot=rows[int(row)].slot,
                )
            )
        return taken


def find_divergence(expected: StepResult, got: StepResult) -> Divergence | None:
    """The first difference that matters: not times, not log-probabilities."""
    if len(expected.rows) != len(got.rows):
        return Divergence(
            step=expected.step,
            slot=0,
            generation=0,
            what="number of rows",
            expected=str(len(expected.rows)),
            got=str(len(got.rows)),
        )
    for then, now in zip(expected.rows, got.rows, strict=True):
        for what, was, found in _fields(then, now):
            if was != found:
                return Divergence(
                    step=expected.step,
                    slot=then.slot,
                    generation=then.generation,
                    what=what,
                    expected=str(was),
                    got=str(found),
                )
    return None


def _fields(then: ResultRow, now: ResultRow) -> Iterator[tuple[str, object, object]]:
    yield "row", (then.slot, then.generation), (now.slot, now.generation)
    yield "emitted", then.emitted, now.emitted
    yield "length", then.length, now.length
    yield "done", then.done, now.done
    yield "first bad layer", then.bad_layer, now.bad_layer


def _num_tokens(result: StepResult) -> int:
    return sum(len(row.emitted) for row in result.rows)
