"""Several runs on one page: their curves over one another, and their figures side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

import msgspec

from draftmark.bench.metrics import e2e_ms, tpot_ms, ttft_ms
from draftmark.bench.report import cells
from draftmark.bench.report.charts import (
    bin_width,
    end_s,
    latency_frame,
    rates,
    share_curve,
    successes,
)
from draftmark.bench.report.compare import Comparison, NotComparable, compare, side_by_side
from draftmark.bench.report.page import figures, page, section, table
from draftmark.bench.report.plot import Chart, scale
from draftmark.bench.request import RequestRecord
from draftmark.bench.result import RunResult

# Each a colour of the page.
STYLES = ("a", "b", "c", "d", "e", "f")


class Kept(msgspec.Struct, frozen=True):
    run: RunResult
    records: Sequence[RequestRecord]


def comparison_html(kept: Sequence[Kept]) -> str:
    """Raises `NotComparable` for what `compare` refuses, and for more runs than there are
    colours."""
    if len(kept) > len(STYLES):
        raise NotComparable(f"a page shows at most {len(STYLES)} runs, not {len(kept)}")
    comparison = compare([one.run for one in kept])
    drawn = [
        _latency(kept, "Time to first token", ttft_ms),
        _latency(kept, "Time per further token", tpot_ms),
        _latency(kept, "From end to end", e2e_ms),
        _throughput(kept),
    ]
    body = [
        f"<header><h1>{escape(' against '.join(comparison.runs))}</h1>{_legend(kept)}</header>",
        "".join(f"<p>{escape(note)}</p>" for note in comparison.notes),
        figures(chart for chart in drawn if chart is not None),
        section("Figures", _figures(comparison)),
    ]
    return page(" against ".join(comparison.runs), "".join(body))


def _legend(kept: Sequence[Kept]) -> str:
    return "".join(
        f'<p class="what"><span class="key {style}"></span>{escape(one.run.run_id)}: '
        f"{escape(cells.headline(one.run))}</p>"
        for style, one in zip(STYLES, kept, strict=False)
    )


def _latency(
    kept: Sequence[Kept], title: str, of: Callable[[RequestRecord], float | None]
) -> tuple[Chart, str] | None:
    several = [successes(one.records, of) for one in kept]
    if not all(several):
        return None
    chart = latency_frame(title, several)
    for style, values, one in zip(STYLES, several, kept, strict=False):
        chart.steps(share_curve(chart, values, num_failed=one.run.counts.failed), style)
    return chart, "Share of requests that were as fast or faster; failed ones never arrive."


def _throughput(kept: Sequence[Kept]) -> tuple[Chart, str] | None:
    ends = [end for one in kept if (end := end_s(one.records)) is not None]
    if len(ends) < len(kept):
        return None
    width = bin_width(max(ends))
    several = [rates(one.records, end, width) for one, end in zip(kept, ends, strict=True)]
    chart = Chart(
        title="Tokens per second over time",
        x=scale(0.0, max(points[-1][0] for points in several), "seconds of the run"),
        y=scale(0.0, 1.08 * max(rate for points in several for _, rate in points), "tok/s"),
        parts=[],
    )
    for style, points in zip(STYLES, several, strict=False):
        chart.steps(points, style)
    return chart, f"Tokens of successful answers, per {width:.3g} s."


def _figures(comparison: Comparison) -> str:
    head, rows = side_by_side(comparison)
    return table(head, [[escape(cell) for cell in row] for row in rows], numbers=True)
