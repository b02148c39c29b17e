"""A run as Markdown: what it says of missing figures, failures and broken runs."""

import msgspec
import pytest

from draftmark.bench.report import cells
from draftmark.bench.report.markdown import run_markdown
from draftmark.bench.request import Failure
from draftmark.bench.result import Incident
from tests.fakes.bench_result import result
from tests.fakes.bench_run import closed_loop, failed


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "n/a"),
        ("inf", "∞"),
        (0.0, "0"),
        (0.00012, "0.00012"),
        (0.1234, "0.123"),
        (1.234, "1.23"),
        (12.34, "12.3"),
        (123.4, "123"),
        (12345.6, "12,346"),
        (7, "7"),
    ],
)
def test_numbers_have_the_digits_that_count(value, text: str):
    assert cells.number(value) == text


def test_a_missing_quantile_says_how_many_it_takes():
    found = result().metrics["ttft_ms"]
    assert cells.quantile(found, "p50") == "100"
    assert cells.quantile(found, "p90") == "n<100"
    assert cells.quantile(found, "p99") == "n<1000"
    nothing = msgspec.structs.replace(found, n=0, p50=None)
    assert cells.quantile(nothing, "p50") == "n/a"
    slow = msgspec.structs.replace(found.with_failures, n=100, p90="inf")
    assert cells.quantile_with_failures(
        msgspec.structs.replace(found, with_failures=slow), "p90"
    ) == "∞"  # fmt: skip


def test_a_run_that_holds():
    text = run_markdown(result())
    assert "test: 40 requests, 4 in flight, 32 tokens in, 8 out, by completions_ids." in text
    assert "**PASS**: every gate holds." in text
    assert "| goodput_req_s    |    n/a |" in text
    assert "- 40 of 40 requests succeeded; failures: none" in text
    assert "s3cret" not in text


def test_a_gate_that_does_not_hold_says_what_to_do():
    text = run_markdown(result(records=closed_loop(concurrency=4, waves=10, n_cached=16)))
    assert "**INVALID**: cache_hit_zero did not hold." in text
    assert "- cache_hit_zero: Send prompts the server has not seen" in text


def test_a_broken_run_shows_no_figure():
    records = [*closed_loop(concurrency=4, waves=10), failed(40, Failure.RESET, at_ms=1)]
    death = Incident(i=40, failure=Failure.RESET, at_s=0.001, collateral=3, error=None)
    text = run_markdown(result(records=records, incidents=[death], why_partial="the server died"))
    assert "**PARTIAL**: the server died. There are rows and counts, and no figures." in text
    assert "out_tok_s" not in text and "ttft_ms" not in text
    assert "- The server died at request 40 (reset); 3 more failed of it" in text
    assert "- 40 of 41 requests succeeded; failures: 1 reset" in text
