"""Gates on a load that was repeated on one server: what they say, no single run can."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from draftmark.bench.gates.evidence import Check, Found
from draftmark.bench.result import GateKind, Memory, RunResult, RunState

MEMORY_GROWTH = 0.01
_KINDS = {"resident_bytes": "of the processes", "gpu_bytes": "of GPUs"}


class Repeats(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one profile, in their order. `bound` is how much longer than the fastest the slowest
    may take, a share."""

    runs: Sequence[RunResult]
    bound: float

    @property
    def unfinished(self) -> str | None:
        """One phrase, when fewer than two of the runs, or not all of them, came to their end."""
        complete = sum(run.state is RunState.COMPLETE for run in self.runs)
        if complete == len(self.runs) and complete >= 2:
            return None
        return f"{complete} of {len(self.runs)} runs came to their end"


def wall_bound(repeats: Repeats) -> Found:
    limit = f"at most {repeats.bound:.1%} over at least 2 runs"
    if repeats.unfinished is not None:
        return Found(holds=None, observed=repeats.unfinished, limit=limit)
    walls = [run.time.wall_s for run in repeats.runs if run.time.wall_s is not None]
    furthest = reproducibility(walls)
    if furthest is None or len(walls) < len(repeats.runs):
        return Found(holds=None, observed="a run without any token", limit=limit)
    apart = max(walls) / min(walls) - 1
    observed = f"{apart:.2%} apart, {furthest:.2%} from the median, {len(walls)} runs"
    return Found(holds=apart <= repeats.bound, observed=observed, limit=limit)


def memory_drift(repeats: Repeats) -> Found:
    """From the end of the first run to that of the last: a server may take memory when it first
    needs it, and what it takes again for the same load is lost."""
    limit = f"at most {MEMORY_GROWTH:.0%} more after the last run than after the first"
    if repeats.unfinished is not None:
        return Found(holds=None, observed=repeats.unfinished, limit=limit)
    first, last = (repeats.runs[place].server.memory for place in (0, -1))
    grown = {
        said: late / early - 1
        for kind, said in _KINDS.items()
        if (early := _bytes(first, kind)) and (late := _bytes(last, kind)) is not None
    }
    if not grown:
        return Found(holds=None, observed="the server does not tell", limit=limit)
    observed = ", ".join(f"{share:+.2%} {said}" for said, share in grown.items())
    return Found(holds=max(grown.values()) <= MEMORY_GROWTH, observed=observed, limit=limit)


def _bytes(memory: Memory | None, kind: str) -> int | None:
    found: int | None = None if memory is None else getattr(memory, kind)
    return found


def reproducibility(values: Sequence[float]) -> float | None:
    """How far the furthest of repeated figures is from their median; None of fewer than two."""
    if len(values) < 2:
        return None
    middle = statistics.median(values)
    return max(abs(value / middle - 1) for value in values)


CHECKS: tuple[Check[Repeats], ...] = (
    Check(
        id="wall_bound",
        kind=GateKind.STABILITY,
        demands="Of the killer: the slowest run took no longer than the fastest, within `--bound`.",
        look=wall_bound,
        where="run.json of each run: time.wall_s",
        advice="Look for other load on the machine and for clocks that fall under heat.",
    ),
    Check(
        id="memory_drift",
        kind=GateKind.STABILITY,
        demands="Of the killer: the server held no more memory, of its processes and of GPUs, "
        "after the last run than after the first, within 1 %.",
        look=memory_drift,
        where="run.json of each run: server.memory",
        advice="Give it more seeds: what grows with each of them is a leak. A server elsewhere "
        "does not tell; on this machine, name its first process with --pid.",
    ),
)
