"""The load that breaks servers, over several seeds: nothing may crash or fail, and the seeds must
take the same time within a bound, which is computed and told."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import msgspec

from draftmark.bench.gates import Repeats, repeat_gates, reproducibility
from draftmark.bench.result import Gate, RunResult, RunState


class KillerRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    run_id: str
    seed: int
    state: RunState
    wall_s: float | None


class KillerResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`killer.json`. `reproducibility` is how far the furthest run is from the median, a share;
    None of fewer than two. `gates` are those over all runs; each run has its own besides."""

    schema: Literal["bench.killer/1"] = "bench.killer/1"
    profile: str
    start_id: str | None
    bound: float
    reproducibility: float | None
    runs: list[KillerRun]
    gates: list[Gate]


def judge_killer(
    runs: Sequence[RunResult], *, bound: float, waive: Collection[str] = ()
) -> KillerResult:
    """`runs` of one profile, one a seed, in their order."""
    walls = [run.time.wall_s for run in runs if run.time.wall_s is not None]
    starts = {run.start_id for run in runs}
    return KillerResult(
        profile=runs[0].profile.name,
        start_id=runs[0].start_id if len(starts) == 1 else None,
        bound=bound,
        reproducibility=reproducibility(walls),
        runs=[
            KillerRun(
                run_id=run.run_id, seed=run.profile.seed, state=run.state, wall_s=run.time.wall_s
            )
            for run in runs
        ],
        gates=repeat_gates(Repeats(runs=runs, bound=bound), waive=waive),
    )
