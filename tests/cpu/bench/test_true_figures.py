"""Whole runs against the truth server: what the result says is what the server did, and of each
fault that the server commits the gates it concerns fail, and no others.

Gates on how busy this machine is are left out: other tests run beside.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from draftmark.bench.adapters import make_adapter
from draftmark.bench.assemble import Occasion, assemble
from draftmark.bench.client.load import LoadResult, run_load
from draftmark.bench.counters import delta
from draftmark.bench.gates import Evidence
from draftmark.bench.incidents import incidents_of
from draftmark.bench.measure import measure
from draftmark.bench.planner import Target, plan_requests
from draftmark.bench.prompts.random_ids import random_prompts
from draftmark.bench.report.html import run_html
from draftmark.bench.request import Failure
from draftmark.bench.result import GateState, Role, RunResult, RunState, ServerState
from draftmark.bench.sampler import Sampler
from draftmark.bench.store import RunFolder, load_records, load_run, load_samples
from draftmark.bench.truth.process import TruthProcess, truth_process
from draftmark.bench.truth.script import Exchange, Kind, Reply, Script
from draftmark.core.errors import Unavailable
from tests.fakes.bench_run import MS, profile

SHAPE = profile(n_requests=24, timeout_s=5.0)
OF_THE_MACHINE = {"client_lag", "client_cpu", "little", "steady_span"}
# The truth server does not tell when it was started.
ALWAYS_UNKNOWN = {"one_start": GateState.UNKNOWN}
GOOD = Reply(ttft_ms=10, gap_ms=2, cached_tokens=0)


class Run(msgspec.Struct):
    result: RunResult
    load: LoadResult
    server: list[Exchange]
    sampler: Any


@pytest.fixture(scope="module")
def truth() -> Iterator[TruthProcess]:
    with truth_process() as process:
        yield process


def run(
    truth: TruthProcess, *replies: Reply, adapter: str = "draftmark", guest: bool = False
) -> Run:
    """The n-th request gets the n-th reply, the others the last. A `guest` comes in between."""
    truth.play(Script(replies=list(replies)))
    server = make_adapter(adapter, truth.url)
    prompts = random_prompts(
        np.arange(1000, dtype=np.uint32), count=SHAPE.n_requests, length=SHAPE.isl, salt="test/1"
    )
    target = Target(model=server.model, accepts=server.accepts)
    plans = plan_requests(SHAPE, prompts, target)
    before = server.before()
    options: dict[str, Any] = {"mode": SHAPE.mode, "timeout_s": SHAPE.timeout_s}
    with Sampler(server, interval_s=0.05) as sampler:
        load = run_load(
            plans, url=truth.url, concurrency=SHAPE.concurrency, on_start=sampler.start, **options
        )
    if guest:
        run_load(plans[:1], url=truth.url, concurrency=1, **options)
    after = None if load.server_died else server.after()
    log = [] if load.server_died else truth.log()
    return Run(_assembled(load, before, after, sampler), load, log, sampler)


def _assembled(
    load: LoadResult, before: ServerState, after: ServerState | None, sampler: Sampler
) -> RunResult:
    incidents = incidents_of(load.records, server_died=load.server_died)
    measured = measure(load.records, SHAPE, delta=delta(before, after), incidents=incidents)
    evidence = Evidence(
        role=Role.MEASURE,
        profile=SHAPE,
        records=load.records,
        measured=measured,
        client=load.client,
        before=before,
        after=after,
        why_partial=load.why_partial,
        samples=sampler.samples,
    )
    occasion = Occasion(
        run_id="run-1", config_id="truth", command=[], started=load.started, ended=load.ended
    )
    return assemble(evidence, occasion, num_missed=len(sampler.missed))


def broken(result: RunResult) -> dict[str, GateState]:
    return {
        gate.id: gate.state
        for gate in result.gates
        if gate.state is not GateState.OK and gate.id not in OF_THE_MACHINE
    }


def true_times(made: Run) -> dict[str, list[float]]:
    """By the server's own log, in ms: from the first byte it saw to the tokens it wrote."""
    times: dict[str, list[float]] = {"ttft_ms": [], "tpot_ms": [], "e2e_ms": []}
    for exchange in made.server:
        first, last = exchange.token_times[0], exchange.token_times[-1]
        tokens = sum(step.tokens for step in exchange.written)
        times["ttft_ms"].append((first - exchange.t_first_byte) / MS)
        times["e2e_ms"].append((last - exchange.t_first_byte) / MS)
        further = tokens - exchange.written[0].tokens if len(exchange.token_times) > 1 else 0
        times["tpot_ms"].append((last - first) / MS / further)
    return times


@pytest.mark.parametrize("adapter", ["draftmark", "vllm"])
@pytest.mark.parametrize("tokens_per_event", [1, 2])
def test_figures_are_what_the_server_did(
    truth: TruthProcess, adapter: str, tokens_per_event: int
) -> None:
    reply = Reply(
        ttft_ms=40,
        gap_ms=12,
        cached_tokens=0,
        usage="continuous",
        role_chunk=False,
        tokens_per_event=tokens_per_event,
    )
    made = run(truth, reply, adapter=adapter)
    lag = made.load.client.lag_p99_ms
    assert lag is not None
    for name, true in true_times(made).items():
        seen = made.result.metrics[name]
        assert seen.n == 24 and seen.mean is not None and seen.p50 is not None
        middle = statistics.median(true)
        # Within 1 ms or 1 %, but for what the client says of its own lag on this busy machine.
        assert abs(seen.p50 - middle) < max(1.0, 0.01 * middle) + lag, name
        assert seen.p50 > 0.99 * middle - lag, name
    sent = min(exchange.t_first_byte for exchange in made.server)
    last = max(exchange.token_times[-1] for exchange in made.server)
    true_rate = 24 * 8 / (last - sent) * 1e9
    assert made.result.figures["out_tok_s"].value == pytest.approx(
        true_rate, rel=0.01 + lag / ((last - sent) / MS)
    )
    assert made.result.metrics["itl_ms"].n == 24 * (8 - tokens_per_event)
    assert made.result.metrics["icl_ms"].n == 24 * (8 // tokens_per_event - 1)
    assert broken(made.result) == ALWAYS_UNKNOWN


def test_acceptance_is_what_the_server_counted(truth: TruthProcess) -> None:
    """Its events after the first are its verify steps: 6 tokens in 2 of them."""
    reply = msgspec.structs.replace(GOOD, tokens_per_event=3, first_tokens=2)
    made = run(truth, reply, adapter="vllm")
    spec = made.result.spec
    assert (spec.accept, spec.source, spec.steps) == (3.0, "counters", 48)
    assert spec.client_estimate is not None


UNKNOWN, FAIL = GateState.UNKNOWN, GateState.FAIL
FAULTS: dict[str, tuple[dict[str, Any], Failure | None, dict[str, GateState]]] = {
    "none": ({}, None, {}),
    "a cache that knew it": ({"cached_tokens": 16}, None, {"cache_hit_zero": FAIL}),
    "a longer prompt": ({"prompt_tokens_off": 1}, None, {"prompt_len_exact": FAIL}),
    "a short answer": ({"tokens": 7}, Failure.SHORT_OUTPUT, {"out_len_exact": FAIL}),
    "a long answer": ({"tokens": 9}, None, {"out_len_exact": FAIL}),
    "no usage": (
        {"usage": "none"},
        None,
        {"token_source_same": FAIL, "prompt_len_exact": UNKNOWN, "out_len_exact": UNKNOWN},
    ),
    "busy": ({"status": 503}, Failure.HTTP_5XX, {"fail_rate": FAIL}),
    "not found": ({"status": 404}, Failure.HTTP_4XX, {"fail_rate": FAIL}),
    "an error in the stream": (
        {"breaks_after": 3, "breaks_by": Kind.ERROR}, Failure.INBAND_ERROR, {"fail_rate": FAIL},
    ),
    "a cut stream": ({"breaks_after": 3}, Failure.TRUNCATED_STREAM, {"fail_rate": FAIL}),
    "no tokens": ({"tokens": 0}, Failure.EMPTY_OUTPUT, {"fail_rate": FAIL}),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_its_gates_and_no_others(truth: TruthProcess, fault: str) -> None:
    changes, failure, gates = FAULTS[fault]
    made = run(truth, msgspec.structs.replace(GOOD, **changes), GOOD)
    assert broken(made.result) == {**ALWAYS_UNKNOWN, **gates}
    assert made.result.counts.by_class == ({} if failure is None else {failure: 1})
    assert made.result.state is RunState.COMPLETE


def test_a_guest_on_the_server_is_noticed(truth: TruthProcess) -> None:
    found = broken(run(truth, GOOD, guest=True).result)
    assert found == {**ALWAYS_UNKNOWN, "no_other_traffic": FAIL}


def test_a_server_that_dies_is_one_incident_and_no_figure(tmp_path: Path) -> None:
    with truth_process() as truth:
        death = msgspec.structs.replace(GOOD, breaks_after=3, breaks_by=Kind.DIE)
        made = run(truth, *[GOOD] * 10, death, GOOD)
        with pytest.raises(Unavailable):
            make_adapter("draftmark", truth.url).before()
    result = made.result
    assert result.state is RunState.PARTIAL and result.why_partial is not None
    assert (result.figures, result.metrics, result.time.wall_s) == ({}, {}, None)
    assert len(result.counts.incidents) == 1
    assert result.counts.incidents[0].collateral == result.counts.failed - 1
    found = broken(result)
    assert {name for name, state in found.items() if state is FAIL} == {
        "complete", "fail_rate", "zero_crash",
    }  # fmt: skip
    folder = RunFolder(tmp_path, "run-1")
    folder.write_records(made.load.records)
    path, kept = folder.finish(result)
    assert load_run(path) == kept
    assert "PARTIAL" in run_html(kept, load_records(path))


def test_a_run_is_kept_and_shown(truth: TruthProcess, tmp_path: Path) -> None:
    made = run(truth, GOOD)
    folder = RunFolder(tmp_path, "run-1")
    folder.write_records(made.load.records)
    folder.write_samples(made.sampler.samples)
    path, kept = folder.finish(made.result)
    assert load_records(path) == made.load.records
    assert load_samples(path) == made.sampler.samples
    page = run_html(kept, made.load.records, made.sampler.samples)
    assert "Requests in flight over time" in page and "running, by the server" in page
