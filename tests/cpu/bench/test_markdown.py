"""A run as Markdown: what it says of missing figures, failures and broken runs."""

import msgspec
import pytest

from draftmark.bench.profile import Mode, PromptSource
from draftmark.bench.report import cells
from draftmark.bench.report.markdown import run_markdown
from draftmark.bench.request import Failure
from draftmark.bench.result import GateState, Incident, Role
from tests.fakes.bench_result import result
from tests.fakes.bench_run import closed_loop, failed, profile


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


def test_a_waiver_is_said_where_a_run_is_said_to_hold() -> None:
    waived = msgspec.structs.replace(result().gates[0], state=GateState.WAIVED)
    run = result()
    text = run_markdown(msgspec.structs.replace(run, gates=[waived, *run.gates[1:]]))
    assert f"**PASS**: every gate holds but {waived.id}, waived as not known." in text


def test_lengths_are_those_that_were_sent() -> None:
    trace = result(profile=profile(mode=Mode.TRACE, osl=512))
    assert "trace, each of its own length, at most 512 tokens out" in run_markdown(trace)
    file = result(profile=profile(source=PromptSource.FILE, file="a.jsonl"))
    assert "prompts as long as they are, 8 tokens out" in run_markdown(file)


def test_a_death_counts_no_tokens_and_waives_nothing() -> None:
    dead = result(
        records=[failed(0, Failure.REFUSED, at_ms=0)], after=None, why_partial="the server died"
    )
    text = run_markdown(dead)
    assert "- Tokens: n/a in, n/a out (by n/a), n/a cached" in text
    assert "unknown" in text and "--waive" not in text
    assert "1 shard, lag" in text


def test_a_warm_run_says_what_it_is() -> None:
    assert "\n\nWarm run. test: 40 requests" in run_markdown(result(role=Role.WARM))


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
