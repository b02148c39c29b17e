"""The charts of a run, each None where the run has nothing to show of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from draftmark.bench.acceptance import step_acceptance
from draftmark.bench.metrics import tpot_ms, ttft_ms
from draftmark.bench.report import cells
from draftmark.bench.report.plot import Chart, Scale, numbered, scale
from draftmark.bench.request import RequestRecord
from draftmark.bench.result import RunResult, RunState, Sample
from draftmark.bench.timeline import in_flight_at, steps_in_flight, tokens_by

_MOST_POINTS = 600
_MOST_STROKES = 300
_FEWEST_BINS = 40


def charts(
    run: RunResult, records: Sequence[RequestRecord], samples: Sequence[Sample]
) -> list[tuple[Chart, str]]:
    """With a line below each. Of a run that broke off only what came over time."""
    drawn = [
        _latency(run, records, "ttft_ms", "Time to first token", ttft_ms),
        _latency(run, records, "tpot_ms", "Time per further token", tpot_ms),
        _throughput(run, records),
        _in_flight(run, records, samples),
        _acceptance_by_position(run),
        _acceptance_over_time(run, samples),
        _kv_use(run, records, samples),
    ]
    return [chart for chart in drawn if chart is not None]


def _latency(
    run: RunResult,
    records: Sequence[RequestRecord],
    name: str,
    title: str,
    of: Callable[[RequestRecord], float | None],
) -> tuple[Chart, str] | None:
    """The share of all requests that were as fast or faster: those that failed never arrive, and
    the curve ends below the top."""
    values = successes(records, of)
    if run.state is RunState.PARTIAL or not values:
        return None
    chart = latency_frame(title, [values])
    found = run.metrics[name]
    for quantile in ("p50", "p90", "p99"):
        value = getattr(found, quantile)
        if value is not None:
            chart.mark(value, quantile)
    chart.steps(share_curve(chart, values, num_failed=run.counts.failed))
    chart.rug([values[place] for place in _thin(len(values), _MOST_STROKES)])
    middle, which = cells.middle(found)
    failed = f", {run.counts.failed} failed" if run.counts.failed else ""
    figures = f"{which} {middle} ms, max {cells.number(found.max)} ms, n {found.n}{failed}"
    return chart, f"Share of requests that were as fast or faster. {figures}."


def successes(
    records: Sequence[RequestRecord], of: Callable[[RequestRecord], float | None]
) -> list[float]:
    """Ascending."""
    return sorted(value for r in records if r.ok and (value := of(r)) is not None)


def latency_frame(title: str, several: Sequence[Sequence[float]]) -> Chart:
    """With room for all of several lists of times, in ms, ascending and none of them empty."""
    first, last = min(values[0] for values in several), max(values[-1] for values in several)
    margin = 0.06 * (last - first or last * 0.1 or 1.0)
    return Chart(
        title=title,
        x=scale(max(0.0, first - margin), last + margin, "ms"),
        y=scale(0.0, 1.0, "", is_share=True),
        parts=[],
    )


def share_curve(
    chart: Chart, values: Sequence[float], *, num_failed: int
) -> list[tuple[float, float]]:
    """Of all requests, failed ones included, the share that took no longer."""
    shown = len(values) + num_failed
    places = _thin(len(values), _MOST_POINTS)
    curve = [(values[place], (place + 1) / shown) for place in places]
    return [(chart.x.low, 0.0), *curve, (chart.x.high, curve[-1][1])]


def rates(records: Sequence[RequestRecord], end: float, width: float) -> list[tuple[float, float]]:
    """Tokens a second of each `width` seconds up to `end`, at their beginnings."""
    edges = np.arange(0.0, end + width, width)
    found = np.diff(tokens_by(records, edges * 1e9)) / width
    return [*zip(edges.tolist(), [*found.tolist(), float(found[-1])], strict=True)]


def bin_width(end: float) -> float:
    return 1.0 if end >= _FEWEST_BINS else end / _FEWEST_BINS


def _throughput(run: RunResult, records: Sequence[RequestRecord]) -> tuple[Chart, str] | None:
    end = end_s(records)
    # Where no answer came whole, that is not a rate of 0.
    if end is None or not run.counts.ok:
        return None
    width = bin_width(end)
    points = rates(records, end, width)
    chart = Chart(
        title="Tokens per second over time",
        x=scale(0.0, points[-1][0], "seconds of the run"),
        y=scale(0.0, 1.08 * max(rate for _, rate in points), "tok/s"),
        parts=[],
    )
    _spans(chart, run)
    chart.steps(points, filled=True)
    return chart, f"Tokens of successful answers, per {width:.3g} s. {_band_note(run)}"


def _in_flight(
    run: RunResult, records: Sequence[RequestRecord], samples: Sequence[Sample]
) -> tuple[Chart, str] | None:
    end = end_s(records)
    if end is None:
        return None
    times, levels = steps_in_flight(records)
    if len(times) > 2 * _MOST_POINTS:
        times = np.linspace(0.0, times[-1], _MOST_POINTS)
        levels = in_flight_at(records, times)
    told = [(s.t / 1e9, s.running) for s in samples if s.running is not None and s.t >= 0]
    told = [(t, running) for t, running in told if t <= end]
    most = max(float(levels.max()), *(float(running) for _, running in told), 1.0)
    chart = Chart(
        title="Requests in flight over time",
        x=scale(0.0, end, "seconds of the run"),
        y=scale(0.0, most * 1.1, ""),
        parts=[],
    )
    _spans(chart, run)
    chart.steps([*zip((times / 1e9).tolist(), levels.tolist(), strict=True)])
    if len(told) > 1:
        chart.steps([(t, float(running)) for t, running in told], "b")
        chart.legend([("a", "sent and not ended"), ("b", "running, by the server")])
    return chart, f"Requests sent and not ended. {_band_note(run)}"


def _acceptance_by_position(run: RunResult) -> tuple[Chart, str] | None:
    shares = run.spec.per_position
    if not shares or run.state is RunState.PARTIAL:
        return None
    chart = Chart(
        title="Drafts accepted by position",
        x=numbered(len(shares), "position in the draft"),
        y=Scale(low=0.0, high=1.1, label="", ticks=[0.0, 0.25, 0.5, 0.75, 1.0], is_share=True),
        parts=[],
    )
    chart.bars(shares)
    return chart, f"Share of the steps that accepted it. Tokens a step: {cells.accept(run.spec)}."


def _acceptance_over_time(run: RunResult, samples: Sequence[Sample]) -> tuple[Chart, str] | None:
    points = step_acceptance(samples)
    if len(points) < 2:
        return None
    most = max(value for _, value in points)
    chart = Chart(
        title="Tokens a step over time",
        x=scale(0.0, points[-1][0] / 1e9, "seconds of the run"),
        y=scale(1.0, most * 1.05 + 0.05, ""),
        parts=[],
    )
    chart.line([(t / 1e9, value) for t, value in points])
    return chart, f"Between two samples of the server's counters, on {cells.prompts(run.spec)}."


def _kv_use(
    run: RunResult, records: Sequence[RequestRecord], samples: Sequence[Sample]
) -> tuple[Chart, str] | None:
    end = end_s(records)
    told = [(s.t / 1e9, s.kv_use) for s in samples if s.kv_use is not None and s.t >= 0]
    if end is None or len(told) < 2:
        return None
    highest = max(use for _, use in told)
    chart = Chart(
        title="KV cache in use over time",
        x=scale(0.0, max(end, told[-1][0]), "seconds of the run"),
        y=scale(0.0, 1.0 if highest > 0.5 else 1.25 * highest or 1.0, "", is_share=True),
        parts=[],
    )
    _spans(chart, run)
    chart.steps(told, filled=True)
    pool = run.server.kv_pool_tokens
    of = f" of {pool:,} tokens" if pool is not None else ""
    return chart, f"By the server's samples{of}; highest {100 * highest:.3g} %."


def _spans(chart: Chart, run: RunResult) -> None:
    steady = run.steady
    if steady is not None and steady.start_s is not None and steady.end_s is not None:
        chart.band(steady.start_s, steady.end_s, "steady")
    for incident in run.counts.incidents:
        if incident.at_s is not None:
            chart.mark(min(incident.at_s, chart.x.high), "the server died", "death")


def _band_note(run: RunResult) -> str:
    if run.steady is None or run.steady.start_s is None:
        return ""
    return "Shaded: the steady span."


def end_s(records: Sequence[RequestRecord]) -> float | None:
    """When the last token came, in seconds of the run."""
    last = [record.t_last for record in records if record.t_last is not None]
    return max(last) / 1e9 if last and max(last) > 0 else None


def _thin(count: int, most: int) -> list[int]:
    """Places to draw of many, evenly, the last one included."""
    if count <= most:
        return list(range(count))
    return [round(place) for place in np.linspace(0, count - 1, most).tolist()]
