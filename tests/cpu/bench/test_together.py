"""Several runs on one page."""

import re
from xml.etree import ElementTree

import pytest

from draftmark.bench.report.compare import NotComparable
from draftmark.bench.report.together import STYLES, Kept, comparison_html
from draftmark.bench.request import Failure
from tests.fakes.bench_result import result
from tests.fakes.bench_run import closed_loop, failed


def kept(run_id: str, *, gap_ms: float = 10.0, num_failed: int = 0) -> Kept:
    records = closed_loop(concurrency=4, waves=10, gaps_ms=[gap_ms] * 7)
    records += [failed(40 + i, Failure.HTTP_5XX, at_ms=1) for i in range(num_failed)]
    return Kept(result(run_id=run_id, records=records), records)


def charts(page: str) -> dict[str, ElementTree.Element]:
    found = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
    return {str(chart.get("aria-label")): chart for chart in found}


def test_curves_lie_over_one_another():
    page = comparison_html([kept("before"), kept("<after>", gap_ms=5.0)])
    assert set(charts(page)) == {
        "Time to first token",
        "Time per further token",
        "From end to end",
        "Tokens per second over time",
    }
    for chart in charts(page).values():
        assert [path.get("class") for path in chart.iter("path")][-2:] == ["line a", "line b"]
    assert "before against &lt;after&gt;" in page
    assert "<td>0.500</td>" in page


def test_an_invalid_run_says_so_and_has_no_ratios():
    page = comparison_html([kept("before"), kept("after", num_failed=10)])
    assert "No ratios: after is invalid (fail_rate fail" in page
    # 40 of 50 arrived: the curve ends below the top.
    curve = list(charts(page)["From end to end"].iter("path"))[-1].get("d")
    assert curve is not None and curve.endswith(" 52.0")


def test_there_are_as_many_runs_as_colours():
    runs = [kept(str(place)) for place in range(len(STYLES) + 1)]
    comparison_html(runs[:-1])
    with pytest.raises(NotComparable, match="at most 6 runs, not 7"):
        comparison_html(runs)
