"""All figures of one run, by the definitions of `metrics`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from draftmark.bench.acceptance import acceptance, tokens_a_step
from draftmark.bench.metrics import (
    FIGURES,
    GAP_METRICS,
    REQUEST_METRICS,
    Definition,
    e2e_ms,
    is_at_once,
    tpot_ms,
    ttft_ms,
)
from draftmark.bench.profile import Mode, Objectives, Profile
from draftmark.bench.quantiles import distribution
from draftmark.bench.request import CountSource, RequestRecord
from draftmark.bench.result import (
    Counters,
    Counts,
    Distribution,
    Figure,
    Incident,
    Speculation,
    Steady,
    Tokens,
    prompt_kind,
)
from draftmark.bench.timeline import steady, tokens_by, tpot_within


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    wall_s: float | None
    counts: Counts
    tokens: Tokens
    metrics: dict[str, Distribution]
    figures: dict[str, Figure]
    steady: Steady | None
    spec: Speculation


def measure(
    records: Sequence[RequestRecord],
    profile: Profile,
    *,
    delta: Counters,
    incidents: Sequence[Incident] = (),
) -> Measured:
    """All figures of a run that came to its end. `delta` is what the server counted in it (see
    `counters.delta`), `incidents` come from `incidents.incidents_of`."""
    succeeded = [record for record in records if record.ok]
    wall_ns = wall(records)
    is_closed = profile.mode is Mode.CLOSED
    target = min(profile.concurrency, len(records))
    span = steady(records, target, wall_ns) if is_closed and target else None
    spec = acceptance(succeeded, delta, prompt_kind(profile.source))
    metrics = _distributions(succeeded, len(records) - len(succeeded))
    values = {
        **_whole_run(records, succeeded, wall_ns, profile.slo),
        **_steps(records, span, tokens_a_step(succeeded, spec), metrics["tpot_ms"].mean),
    }
    return Measured(
        wall_s=None if wall_ns is None else wall_ns / 1e9,
        counts=count(records, incidents),
        tokens=count_tokens(succeeded),
        metrics=metrics,
        figures={name: _figure(name, value, len(records)) for name, value in values.items()},
        steady=span,
        spec=spec,
    )


def withhold(measured: Measured) -> Measured:
    """What may be told of a run that broke off: what was counted, and nothing that was timed."""
    nothing = msgspec.structs.replace(measured.spec, accept=None, client_estimate=None)
    return msgspec.structs.replace(
        measured, wall_s=None, metrics={}, figures={}, steady=None, spec=nothing
    )


def wall(records: Sequence[RequestRecord]) -> float | None:
    """Nanoseconds from the first byte sent to the last token; None when no token came."""
    sent = [record.t_send for record in records if record.t_send is not None]
    last = [record.t_last for record in records if record.t_last is not None]
    return float(max(last) - min(sent)) if sent and last and max(last) > min(sent) else None


def count(records: Sequence[RequestRecord], incidents: Sequence[Incident]) -> Counts:
    failures = Counter(record.failure for record in records if record.failure is not None)
    return Counts(
        sent=len(records),
        ok=len(records) - failures.total(),
        failed=failures.total(),
        by_class=dict(failures),
        collateral=sum(record.collateral for record in records),
        incidents=list(incidents),
    )


def count_tokens(succeeded: Sequence[RequestRecord]) -> Tokens:
    sources = Counter(r.n_out_source for r in succeeded if r.n_out_source is not None)
    is_one = len(sources) == 1 and sources.total() == len(succeeded)
    prompts = [r.n_in_usage if r.n_in_usage is not None else r.n_in_plan for r in succeeded]
    return Tokens(
        input=_sum(prompts),
        output=_sum([record.n_out for record in succeeded]),
        cached=_sum([record.n_cached for record in succeeded]),
        source=next(iter(sources)) if is_one else None,
        sources={source: sources[source] for source in CountSource if sources[source]},
    )


def is_good(record: RequestRecord, slo: Objectives) -> bool | None:
    """Successful and within each objective. One that does not exist for an answer, the time per
    further token of an answer of one token, is no objective for it; None where one exists and was
    not measured."""
    limits = [(slo.ttft_ms, ttft_ms), (slo.e2e_ms, e2e_ms)]
    if not is_at_once(record):
        limits.append((slo.tpot_ms, tpot_ms))
    asked = [(of(record), limit) for limit, of in limits if limit is not None]
    if not record.ok or any(value is not None and value > limit for value, limit in asked):
        return False
    return None if any(value is None for value, _ in asked) else True


def count_good(records: Sequence[RequestRecord], slo: Objectives) -> int | None:
    """None without objectives, and where any request is not known to be good or not."""
    judged = [is_good(record, slo) for record in records]
    return None if slo == Objectives() or None in judged else judged.count(True)


def _distributions(succeeded: Sequence[RequestRecord], num_failed: int) -> dict[str, Distribution]:
    found = {}
    for metric in REQUEST_METRICS:
        values = [value for record in succeeded if (value := metric.of(record)) is not None]
        found[metric.definition.name] = _distribution(metric.definition, values, num_failed)
    for gaps in GAP_METRICS:
        parts = [gaps.of(record) for record in succeeded]
        known = [part for part in parts if part is not None]
        pooled = [value for part in known for value in part] if len(known) == len(parts) else []
        found[gaps.definition.name] = _distribution(gaps.definition, pooled, None)
    return found


def _distribution(
    definition: Definition, values: list[float], num_failed: int | None
) -> Distribution:
    return distribution(values, unit=definition.unit, basis=definition.basis, num_failed=num_failed)


def _whole_run(
    records: Sequence[RequestRecord],
    succeeded: Sequence[RequestRecord],
    wall_ns: float | None,
    slo: Objectives,
) -> dict[str, float | None]:
    seconds = None if wall_ns is None else wall_ns / 1e9
    tokens = count_tokens(succeeded)
    times = [value for record in succeeded if (value := e2e_ms(record)) is not None]
    good = count_good(records, slo)
    return {
        "out_tok_s": _by(tokens.output, seconds),
        "in_tok_s": _by(tokens.input, seconds),
        "req_s": _by(len(succeeded), seconds),
        "ok_request_tok_s": _by(tokens.output, math.fsum(times) / 1e3),
        "ok_share": _by(len(succeeded), len(records)),
        "goodput_req_s": _by(good, seconds),
        "attainment": _by(good, len(records)),
    }


def _steps(
    records: Sequence[RequestRecord],
    span: Steady | None,
    emitted: float | None,
    mean_tpot_ms: float | None,
) -> dict[str, float | None]:
    """`emitted` are the tokens that a step gives a sequence."""
    rate = lane_s = tpot_ns = None
    if span is not None and span.start_s is not None and span.end_s is not None:
        edges = np.array([span.start_s, span.end_s])
        came = tokens_by(records, edges * 1e9)
        rate = _by(float(came[1] - came[0]), span.end_s - span.start_s)
        lane_s = _by(span.mean_in_flight, rate)
        tpot_ns = tpot_within(records, *(edges * 1e9))
    return {
        "steady_out_tok_s": rate,
        "steady_tpot_ms": _times(tpot_ns, 1e-6),
        "step_ms": _times(_times(lane_s, 1e3), emitted),
        "tpot_step_ms": _times(mean_tpot_ms, emitted),
    }


def _figure(name: str, value: float | None, n: int) -> Figure:
    definition = FIGURES[name]
    return Figure(unit=definition.unit, basis=definition.basis, n=n, value=value)


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _by(amount: float | None, per: float | None) -> float | None:
    return amount / per if amount is not None and per else None


def _times(left: float | None, right: float | None) -> float | None:
    return left * right if left is not None and right is not None else None
