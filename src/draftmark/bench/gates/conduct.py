"""Gates on how a run was made: the client kept up, the server was the same and had no other guests,
and nothing failed."""

from __future__ import annotations

import math
import statistics

import numpy as np

from draftmark.bench.counters import same_start
from draftmark.bench.gates.evidence import Check, Evidence, Found
from draftmark.bench.manifest import changes
from draftmark.bench.measure import wall
from draftmark.bench.request import Failure
from draftmark.bench.result import DriftState, GateKind, Role
from draftmark.bench.timeline import LEAST_SHARE_OF_WALL, in_flight_at, mean_in_flight

LAG_MS, LAG_SHARE_OF_TPOT = 2.0, 0.05
CPU_SHARE = 0.70
LITTLE = 0.02
_FEWEST_SAMPLES = 10


def came_to_its_end(evidence: Evidence) -> Found:
    why = evidence.why_partial
    return Found(holds=why is None, observed=why or "it did", limit="every request was tried")


def client_lag(evidence: Evidence) -> Found:
    tpot = evidence.measured.metrics["tpot_ms"].mean if evidence.measured.metrics else None
    most = max(LAG_MS, LAG_SHARE_OF_TPOT * (tpot or 0.0))
    limit = f"p99 under {most:.2f} ms"
    lag = evidence.client.lag_p99_ms
    if lag is None:
        return Found(holds=None, observed="not measured", limit=limit)
    return Found(holds=lag < most, observed=f"p99 {lag:.2f} ms", limit=limit)


def client_cpu(evidence: Evidence) -> Found:
    share, limit = evidence.client.cpu_share, f"under {CPU_SHARE:.0%} of a core a shard"
    if share is None:
        return Found(holds=None, observed="not measured", limit=limit)
    return Found(holds=share < CPU_SHARE, observed=f"{share:.0%}", limit=limit)


def little(evidence: Evidence) -> Found:
    """Requests a second times their mean time is the mean number in flight, as counted here, and as
    the server saw it at the moments of its samples: a difference there is a queue between both, or
    a clock that is wrong."""
    limit = f"within {LITTLE:.0%}"
    wall_ns = wall(evidence.records)
    sent = [r for r in evidence.records if r.t_send is not None]
    ended = [r.t_done - r.t_send for r in sent if r.t_done is not None and r.t_send is not None]
    if wall_ns is None or not ended:
        return Found(holds=None, observed="no request ended", limit=limit)
    begin = min(r.t_send for r in sent if r.t_send is not None)
    by_law = len(sent) / wall_ns * statistics.fmean(ended)
    counted = mean_in_flight(evidence.records, begin, begin + wall_ns)
    holds = counted is not None and abs(by_law - counted) <= LITTLE * by_law
    agrees, seen = _server_sees(evidence, begin, begin + wall_ns)
    return Found(
        holds=holds and agrees,
        observed=f"X*R {by_law:.2f}, counted {counted:.2f}, {seen}",
        limit=limit,
    )


def _server_sees(evidence: Evidence, begin: float, end: float) -> tuple[bool, str]:
    """Both at the same moments. What lies within the noise of the samples is no difference: a
    sample falls into the hand-over from one request to the next by chance."""
    told = [
        (sample.t, sample.running + sample.waiting)
        for sample in evidence.samples
        if sample.running is not None and sample.waiting is not None and begin <= sample.t < end
    ]
    if len(told) < _FEWEST_SAMPLES:
        return True, f"the server's own unknown ({len(told)} samples)"
    server = np.array([level for _, level in told], dtype=np.float64)
    client = in_flight_at(evidence.records, np.array([t for t, _ in told], dtype=np.float64))
    off = server - client
    noise = 2 * float(off.std(ddof=1)) / math.sqrt(len(told))
    allowed = max(LITTLE * float(client.mean()), noise)
    text = f"{server.mean():.2f} by the server and {client.mean():.2f} here"
    return abs(float(off.mean())) <= allowed, f"{text} in {len(told)} samples"


def fail_rate(evidence: Evidence) -> Found:
    """Short answers have a gate of their own."""
    counts = evidence.measured.counts
    failures = {k: n for k, n in counts.by_class.items() if k is not Failure.SHORT_OUTPUT}
    observed = f"{sum(failures.values())} of {counts.sent} failed"
    if failures:
        observed += ": " + ", ".join(f"{n} {name}" for name, n in failures.items())
    return Found(holds=not failures, observed=observed, limit="none")


def steady_span(evidence: Evidence) -> Found | None:
    steady = evidence.measured.steady
    if steady is None or evidence.role is not Role.MEASURE:
        return None
    share = steady.share_of_wall
    observed = f"{share:.0%} of the run" if share is not None else str(steady.flagged)
    return Found(
        holds=steady.flagged is None,
        observed=observed,
        limit=f"at least {LEAST_SHARE_OF_WALL:.0%} of the run",
    )


def no_other_traffic(evidence: Evidence) -> Found:
    """Some servers count what they finished, some what reached them."""
    sent = sum(record.t_send is not None for record in evidence.records)
    succeeded = evidence.measured.counts.ok
    limit = f"{sent} requests" if sent == succeeded else f"{succeeded} to {sent} requests"
    counted = evidence.delta.requests
    if counted is None:
        return Found(holds=None, observed="the server does not tell", limit=limit)
    return Found(holds=succeeded <= counted <= sent, observed=f"{counted} requests", limit=limit)


def one_start(evidence: Evidence) -> Found:
    limit = "the same process before and after"
    if evidence.after is None:
        return Found(holds=None, observed="the server was gone", limit=limit)
    same = same_start(evidence.before, evidence.after)
    started = (evidence.before.start_id, evidence.after.start_id)
    observed = "the server does not tell" if same is None else f"{started[0]} and {started[1]}"
    return Found(holds=same, observed=observed, limit=limit)


def drift_none(evidence: Evidence) -> Found | None:
    """A declared key that the server does not tell of leaves the gate unknown."""
    if evidence.drift is None:
        return None
    differs = [row.key for row in evidence.drift if row.state is DriftState.DIFFERS]
    missing = [row.key for row in evidence.drift if row.state is DriftState.MISSING]
    holds = False if differs else None if missing else True
    parts = [f"differs: {', '.join(differs)}"] if differs else []
    parts += [f"not told: {', '.join(missing)}"] if missing else []
    equal = sum(row.state is DriftState.EQUAL for row in evidence.drift)
    return Found(
        holds=holds,
        observed="; ".join(parts) or f"{equal} keys equal",
        limit="every declared key in effect",
    )


def manifest_same(evidence: Evidence) -> Found | None:
    if evidence.manifests is None:
        return None
    changed = changes(*evidence.manifests)
    observed = ", ".join(changed) or f"{len(evidence.manifests[0].files)} files the same"
    return Found(holds=not changed, observed=observed, limit="the same at both ends of the run")


CHECKS: tuple[Check[Evidence], ...] = (
    Check(
        id="complete",
        kind=GateKind.METHOD,
        demands="The run came to its end.",
        look=came_to_its_end,
        where="run.json: state, why_partial",
        advice="Run it again: of a run that broke off there are rows, and no figures.",
    ),
    Check(
        id="client_lag",
        kind=GateKind.METHOD,
        demands="The client saw events no later than figures can bear: p99 under 2 ms, or 5 % "
        "of the time per token.",
        look=client_lag,
        where="run.json: client.lag_p99_ms",
        advice="More shards (see `bench calibrate`), or a machine of its own for the client.",
    ),
    Check(
        id="client_cpu",
        kind=GateKind.METHOD,
        demands="No process of the client used 70 % of a core.",
        look=client_cpu,
        where="run.json: client.cpu_share",
        advice="More shards (see `bench calibrate`), or a machine of its own for the client.",
    ),
    Check(
        id="little",
        kind=GateKind.METHOD,
        demands="Requests a second times their mean time is the number in flight, as counted "
        "here and as the server saw it.",
        look=little,
        where="requests.jsonl.gz: t_send, t_done; samples.jsonl.gz: running, waiting",
        advice="Look for a proxy or a full accept queue between client and server.",
    ),
    Check(
        id="fail_rate",
        kind=GateKind.METHOD,
        demands="No request failed.",
        look=fail_rate,
        where="run.json: counts.by_class; requests.jsonl.gz: failure, error",
        advice="Read the errors of the failed requests and the server's log.",
    ),
    Check(
        id="steady_span",
        kind=GateKind.METHOD,
        demands="The number in flight stood at its target for 30 % of the run.",
        look=steady_span,
        where="run.json: steady",
        advice="More requests for each one in flight: four waves and more.",
    ),
    Check(
        id="no_other_traffic",
        kind=GateKind.METHOD,
        demands="The server counted the requests of this run and no others.",
        look=no_other_traffic,
        where="run.json: server.delta.requests",
        advice="Keep everybody else off the server while it is measured.",
    ),
    Check(
        id="one_start",
        kind=GateKind.METHOD,
        demands="The same process of the server answered before and after.",
        look=one_start,
        where="server_before.json, server_after.json: start_id",
        advice="The server started anew in the run: read its log, and measure again.",
    ),
    Check(
        id="drift_none",
        kind=GateKind.METHOD,
        demands="With --declared: every declared setting is in effect.",
        look=drift_none,
        where="run.json: drift",
        advice="Make the server run with what was declared, or declare what it runs with.",
    ),
    Check(
        id="manifest_same",
        kind=GateKind.METHOD,
        demands="Files, code, packages and environment were the same at both ends of the run.",
        look=manifest_same,
        where="manifest.json",
        advice="Change no file and install nothing while a run goes on.",
    ),
)
