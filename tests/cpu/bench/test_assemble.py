"""A run becomes a result, and a broken one gets no figure."""

import msgspec

from draftmark.bench.gates import Standing, standing
from draftmark.bench.metrics import METRICS_VERSION
from draftmark.bench.request import Failure
from draftmark.bench.result import RunResult, RunState
from tests.fakes.bench_result import result
from tests.fakes.bench_run import closed_loop, failed


def test_a_result_reads_back_as_it_was():
    made = result()
    assert made.schema == "bench.run/1"
    assert made.metrics_v == METRICS_VERSION
    assert made.state is RunState.COMPLETE
    assert msgspec.json.decode(msgspec.json.encode(made), type=RunResult) == made
    assert standing(made.gates) is Standing.PASS


def test_a_run_that_broke_off_has_counts_and_no_figures():
    records = [*closed_loop(concurrency=4, waves=10), failed(40, Failure.RESET, at_ms=99)]
    cut = result(records=records, why_partial="the server died", after=None)
    assert cut.state is RunState.PARTIAL
    assert (cut.metrics, cut.figures, cut.steady, cut.time.wall_s) == ({}, {}, None, None)
    assert (cut.counts.sent, cut.counts.ok) == (41, 40)
    assert standing(cut.gates) is Standing.INVALID


def test_keys_of_the_command_are_not_told():
    assert result().command[-2:] == ["--api-key", "***"]
