"""Gates on whether the server held: no death, no growing memory, a clean log, the same time again,
and drafts that are accepted at all."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from draftmark.bench.gates.evidence import STATES, Check, Evidence, Found
from draftmark.bench.result import Gate, GateKind, Role, RunResult, RunState

MEMORY_GROWTH = 0.01
LEAST_ACCEPTED_OF_DRAFT = 0.1


def zero_crash(evidence: Evidence) -> Found:
    incidents = evidence.measured.counts.incidents
    observed = f"{len(incidents)} {'death' if len(incidents) == 1 else 'deaths'}"
    if incidents:
        lost = sum(incident.collateral for incident in incidents)
        observed += f", {lost} further requests lost to them"
    return Found(holds=not incidents, observed=observed, limit="none")


def memory_drift(evidence: Evidence) -> Found | None:
    """Of the killer profile: what grew in it would grow on."""
    if evidence.role is not Role.KILLER:
        return None
    limit = f"at most {MEMORY_GROWTH:.0%} more"
    early = evidence.before.memory_bytes
    late = evidence.after.memory_bytes if evidence.after is not None else None
    if early is None or late is None or early <= 0:
        return Found(holds=None, observed="the server does not tell", limit=limit)
    growth = late / early - 1
    return Found(holds=growth <= MEMORY_GROWTH, observed=f"{growth:+.2%}", limit=limit)


def log_clean(evidence: Evidence) -> Found | None:
    """A class without a limit is only told of."""
    if evidence.why_no_log is not None:
        return Found(holds=None, observed=evidence.why_no_log, limit="a log of the whole run")
    if evidence.log is None:
        return None
    over = [row for row in evidence.log if row.limit is not None and row.count > row.limit]
    observed = ", ".join(f"{row.count} {row.klass}" for row in over) or "nothing over its limit"
    limits = ", ".join(f"{row.klass} {row.limit}" for row in evidence.log if row.limit is not None)
    return Found(holds=not over, observed=observed, limit=limits or "none set")


def spec_sanity(evidence: Evidence) -> Found | None:
    spec = evidence.measured.spec
    if not spec.steps or spec.draft_length is None:
        return None
    least = 1 + LEAST_ACCEPTED_OF_DRAFT * spec.draft_length
    limit = f"at least {least:.2f} tokens a step"
    if spec.accept is None:
        return Found(holds=None, observed="not measured", limit=limit)
    observed = f"{spec.accept:.2f} tokens a step on {spec.prompts}"
    return Found(holds=spec.accept >= least, observed=observed, limit=limit)


CHECKS = (
    Check(
        id="zero_crash",
        kind=GateKind.STABILITY,
        demands="The server did not die.",
        look=zero_crash,
        where="run.json: counts.incidents",
        advice="Read the server's log of the moment that the incident names.",
    ),
    Check(
        id="memory_drift",
        kind=GateKind.STABILITY,
        demands="Of the killer: the server held no more GPU memory after than before, within 1 %.",
        look=memory_drift,
        where="server_before.json, server_after.json: memory_bytes",
        advice="Run the killer again on the same start: what grows each time is a leak.",
    ),
    Check(
        id="log_clean",
        kind=GateKind.STABILITY,
        demands="With --log: no more lines of a class (nan, fallback, oom, xid, traceback) than "
        "its limit, which is 0.",
        look=log_clean,
        where="run.json: log; log.slice.gz",
        advice="Read the lines; one that is expected belongs in the allow list, by its class.",
    ),
    Check(
        id="spec_sanity",
        kind=GateKind.QUALITY,
        demands="Drafts are accepted at all: at least a tenth of their length a step.",
        look=spec_sanity,
        where="run.json: spec",
        advice="Drafts are hardly accepted: see that the draft head is that of the model.",
    ),
)


def reproducibility(values: Sequence[float]) -> float | None:
    """How far the furthest of repeated figures is from their median; None of fewer than two."""
    if len(values) < 2:
        return None
    middle = statistics.median(values)
    return max(abs(value / middle - 1) for value in values)


def wall_bound(runs: Sequence[RunResult], bound: float) -> Gate:
    """Of a killer's runs, one for each seed: the slowest within `bound` of the fastest."""
    holds, observed = _walls_apart(runs, bound)
    return Gate(
        id="wall_bound",
        kind=GateKind.STABILITY,
        observed=observed,
        limit=f"at most {bound:.1%} over at least 2 runs",
        state=STATES[holds],
        evidence="run.json of each run: time.wall_s",
        advice="Look for other load on the machine and for clocks that fall under heat.",
    )


def _walls_apart(runs: Sequence[RunResult], bound: float) -> tuple[bool | None, str]:
    walls = [
        run.time.wall_s
        for run in runs
        if run.time.wall_s is not None and run.state is RunState.COMPLETE
    ]
    if len(walls) < max(2, len(runs)):
        return None, f"{len(walls)} of {len(runs)} runs came to their end"
    apart, furthest = max(walls) / min(walls) - 1, reproducibility(walls)
    return apart <= bound, f"{apart:.2%} apart, {furthest:.2%} from the median, {len(walls)} runs"
