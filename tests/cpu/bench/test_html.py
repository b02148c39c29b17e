"""The page of a run: whole in itself, and silent where nothing was measured."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import msgspec
import pytest

from draftmark.bench.report.charts import charts
from draftmark.bench.report.html import run_html
from draftmark.bench.request import Failure
from draftmark.bench.result import Counters, Drift, DriftState, Incident, LogFinding, Sample
from tests.fakes.bench_result import result
from tests.fakes.bench_run import MS, closed_loop, evidence, failed, record, server_state

RECORDS = closed_loop(concurrency=4, waves=10)
SAMPLES = list(evidence().samples)
VOID = {"meta", "br"}


class Page(HTMLParser):
    """Tags that were opened and closed rightly, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


def titles(run, records=RECORDS, samples=SAMPLES) -> list[str]:
    return [chart.title for chart, _ in charts(run, records, samples)]


def test_the_page_needs_nothing_else():
    text = run_html(result(), RECORDS, SAMPLES)
    page = Page(text)
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert page.links == []
    assert "url(" not in text and "@import" not in text
    assert "prefers-color-scheme: dark" in text
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(svg)


def test_what_a_run_shows():
    page = Page(run_html(result(), RECORDS, SAMPLES))
    for words in ("187 tok/s", "40 of 40", "every gate holds", "n<100", "cache_hit_zero"):
        assert words in page.words
    assert "s3cret" not in page.words


def test_charts_of_a_run_without_drafts():
    assert titles(result()) == [
        "Time to first token",
        "Time per further token",
        "Tokens per second over time",
        "Requests in flight over time",
        "KV cache in use over time",
    ]


def test_charts_of_drafts():
    counted = {"verify_steps": 100, "drafted": 200, "accepted": 150, "cached_tokens": 7}
    run = result(
        before=server_state(
            requests=100, cached_tokens=7, verify_steps=0, drafted=0, accepted=0,
            accepted_per_position=[0, 0],
        ),
        after=server_state(requests=140, accepted_per_position=[90, 60], **counted),
    )  # fmt: skip
    samples = [
        msgspec.structs.replace(
            sample, counters=Counters(verify_steps=10 * place, accepted=15 * place)
        )
        for place, sample in enumerate(SAMPLES)
    ]
    found = {chart.title: said for chart, said in charts(run, RECORDS, samples)}
    assert "2.50 (random ids, by counters)" in found["Drafts accepted by position"]
    assert "random ids" in found["Tokens a step over time"]


def test_a_server_that_tells_nothing_has_no_chart_of_it():
    silent = [Sample(t=i * MS, running=None, waiting=None, kv_use=None) for i in range(9)]
    assert "KV cache in use over time" not in titles(result(samples=[]), samples=silent)
    assert "KV cache in use over time" not in titles(result(samples=[]), samples=[])


def test_failed_requests_keep_the_curve_from_the_top():
    records = [*RECORDS, *(failed(40 + i, Failure.HTTP_5XX, at_ms=1) for i in range(40))]
    run = result(records=records)
    (chart, said), *_ = charts(run, records, SAMPLES)
    assert said.endswith("n 40, 40 failed.")
    top = min(
        float(y)
        for part in chart.parts
        if 'class="line' in part
        for y in re.findall(r" ([\d.]+)", part)
    )
    assert top == pytest.approx(chart.at_y(0.5))


def test_a_broken_run_is_marked_and_has_no_figure():
    records = [*RECORDS, failed(40, Failure.RESET, at_ms=900, error="<reset>")]
    death = Incident(i=40, failure=Failure.RESET, at_s=0.9, collateral=0, error="<reset>")
    run = result(records=records, incidents=[death], why_partial="the server died", after=None)
    page = Page(run_html(run, records, SAMPLES))
    assert "PARTIAL" in page.words and "no figures" in page.words
    assert "out_tok_s" not in page.words and "Times, in ms" not in page.words
    assert "the server died" in page.words and "<reset>" in page.words
    assert titles(run, records) == [
        "Tokens per second over time",
        "Requests in flight over time",
        "KV cache in use over time",
    ]


def test_answers_that_were_all_cut_are_no_rate_of_nothing():
    cut = [record(0, failure=Failure.TRUNCATED_STREAM), record(1, failure=Failure.TRUNCATED_STREAM)]
    run = result(records=cut, samples=[], why_partial="the server died", after=None)
    assert [chart.title for chart, _ in charts(run, cut, [])] == ["Requests in flight over time"]


def test_little_of_a_large_pool_is_not_nothing():
    little = [msgspec.structs.replace(sample, kv_use=0.000384) for sample in SAMPLES]
    said = {chart.title: said for chart, said in charts(result(), RECORDS, little)}
    assert said["KV cache in use over time"].endswith("highest 0.0384 %.")


def test_a_server_that_never_answered():
    records = [failed(i, Failure.REFUSED, at_ms=1) for i in range(3)]
    run = result(records=records, samples=[], why_partial="the server died", after=None)
    assert charts(run, records, []) == []
    Page(run_html(run, records))


def test_hostile_names_stay_text():
    evil = "<script>alert(1)</script>"
    run = result(
        run_id=evil,
        config_id=evil,
        drift=[Drift(key=evil, state=DriftState.EQUAL, declared=evil, effective=evil)],
        log=[LogFinding(klass=evil, count=1, limit=None, examples=[evil])],
    )
    page = Page(run_html(run, RECORDS, SAMPLES))
    assert "script" not in page.tags
    assert page.words.count(evil) >= 7


def test_many_requests_are_thinned():
    records = closed_loop(concurrency=50, waves=60)
    run = result(records=records, samples=[])
    assert len(run_html(run, records)) < 200_000
