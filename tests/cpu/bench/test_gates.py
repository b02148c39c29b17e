"""Each gate fires, and only it: a run without fault, and the same with one thing wrong."""

import msgspec
import pytest

from draftmark.bench.gates import (
    GATES,
    Repeats,
    Standing,
    check_waivers,
    repeat_gates,
    run_gates,
    standing,
)
from draftmark.bench.incidents import incidents_of
from draftmark.bench.killer import judge_killer
from draftmark.bench.manifest import take_manifest
from draftmark.bench.profile import Mode, PromptSource
from draftmark.bench.request import CountSource, Failure
from draftmark.bench.result import (
    ClientReport,
    Drift,
    DriftState,
    Gate,
    GateKind,
    GateState,
    LedgerUse,
    LogFinding,
    Memory,
    Role,
    RunResult,
    Sample,
)
from draftmark.core.errors import ConfigError
from tests.fakes.bench_result import result
from tests.fakes.bench_run import MS, closed_loop, evidence, failed, profile, record, server_state


def states(run) -> dict[str, GateState]:
    return {row.id: row.state for row in run_gates(run)}


def broken(run) -> dict[str, GateState]:
    """The gates that do not hold."""
    return {name: state for name, state in states(run).items() if state is not GateState.OK}


def with_record(**changes):
    runs = closed_loop(concurrency=4, waves=10)
    return [msgspec.structs.replace(runs[0], **changes), *runs[1:]]


def window(klass: str) -> LedgerUse:
    return LedgerUse(corpus="books", window=(0, 1280), klass=klass, line_sha="0" * 64)


def finding(klass: str, count: int, limit: int | None) -> LogFinding:
    return LogFinding(klass=klass, count=count, limit=limit, examples=[])


def drift(state: DriftState) -> list[Drift]:
    return [Drift(key="a", state=DriftState.EQUAL), Drift(key="b", state=state)]


MANIFEST = take_manifest({}, [])
LEDGER = profile(source=PromptSource.LEDGER)
SPECULATING = {"requests": 140, "cached_tokens": 7, "verify_steps": 100, "drafted": 300}


def test_a_run_without_fault_passes_every_gate():
    full = evidence(
        profile=LEDGER,
        ledger=window("fresh"),
        drift=drift(DriftState.IMPLICIT),
        log=[finding("nan", 0, 0), finding("retract", 3, None)],
        manifests=(MANIFEST, MANIFEST),
        before=server_state(requests=100, cached_tokens=7, verify_steps=0, drafted=0, accepted=0),
        after=server_state(**SPECULATING, accepted=185),
    )
    found = states(full)
    assert set(found.values()) == {GateState.OK}
    assert set(found) == set(GATES)
    assert standing(run_gates(full)) is Standing.PASS


def test_what_nobody_asked_for_is_no_gate():
    found = states(evidence())
    assert set(found.values()) == {GateState.OK}
    assert not {"drift_none", "log_clean", "manifest_same", "spec_sanity"} & found.keys()


@pytest.mark.parametrize(
    ("gate", "changes"),
    [
        ("corpus_fresh", {"records": with_record(prompt_sha=f"{1:064x}")}),
        ("corpus_fresh", {"profile": LEDGER, "ledger": window("reused")}),
        ("cache_hit_zero", {"records": with_record(n_cached=16)}),
        ("cache_hit_zero", {"after": server_state(requests=140, cached_tokens=23)}),
        ("prompt_len_exact", {"records": with_record(n_in_usage=31)}),
        ("out_len_exact", {"records": with_record(n_out=9)}),
        ("out_len_exact", {"records": with_record(n_out=7, failure=Failure.SHORT_OUTPUT)}),
        ("token_source_same", {"records": with_record(n_out_source=CountSource.TOKEN_IDS)}),
        ("complete", {"why_partial": "interrupted"}),
        ("client_lag", {"client": ClientReport(shards=1, lag_p99_ms=2.5, cpu_share=0.1)}),
        ("client_cpu", {"client": ClientReport(shards=1, lag_p99_ms=0.5, cpu_share=0.75)}),
        ("little", {"samples": [Sample(t=i * 100 * MS, running=3, waiting=0, kv_use=None)
                                for i in range(16)]}),
        ("little", {"records": [msgspec.structs.replace(r, t_done=r.t_done + 3000 * MS)
                                if r.i >= 36 else r
                                for r in closed_loop(concurrency=4, waves=10)]}),
        ("fail_rate", {"records": [*closed_loop(concurrency=4, waves=10),
                                   failed(40, Failure.HTTP_5XX, at_ms=100)]}),
        ("steady_span", {"profile": profile(concurrency=5)}),
        ("no_other_traffic", {"after": server_state(requests=141, cached_tokens=7)}),
        ("no_other_traffic", {"after": server_state(requests=139, cached_tokens=7)}),
        ("drift_none", {"drift": drift(DriftState.DIFFERS)}),
        ("manifest_same",
         {"manifests": (MANIFEST, msgspec.structs.replace(MANIFEST, python="2.7"))}),
        ("log_clean", {"log": [finding("nan", 1, 0), finding("fallback", 1, None)]}),
        ("spec_sanity",
         {"before": server_state(requests=100, cached_tokens=7, verify_steps=0, drafted=0,
                                 accepted=0),
          "after": server_state(**SPECULATING, accepted=29)}),
    ],
)  # fmt: skip
def test_one_fault_fails_one_gate(gate: str, changes: dict):
    run = evidence(**changes)
    assert broken(run) == {gate: GateState.FAIL}
    is_method = GATES[gate].kind is GateKind.METHOD
    assert standing(run_gates(run)) is (Standing.INVALID if is_method else Standing.FAIL)


@pytest.mark.parametrize(
    ("gates", "changes"),
    [
        ("corpus_fresh", {"profile": LEDGER}),
        ("cache_hit_zero", {"records": with_record(n_cached=None),
                            "after": server_state(requests=140)}),
        ("prompt_len_exact", {"records": with_record(n_in_usage=None)}),
        ("out_len_exact", {"records": [msgspec.structs.replace(r, n_out_source=CountSource.CHUNKS)
                                       for r in closed_loop(concurrency=4, waves=10)]}),
        ("client_lag", {"client": ClientReport(shards=1, lag_p99_ms=None, cpu_share=0.1)}),
        ("client_cpu", {"client": ClientReport(shards=1, lag_p99_ms=0.1, cpu_share=None)}),
        ("no_other_traffic", {"after": server_state(cached_tokens=7)}),
        ("one_start", {"before": server_state(start_id=None, requests=100, cached_tokens=7)}),
        ("drift_none", {"drift": drift(DriftState.MISSING)}),
    ],
)  # fmt: skip
def test_what_is_not_told_is_unknown_and_not_passed(gates: str, changes: dict):
    run = evidence(**changes)
    assert broken(run) == {gates: GateState.UNKNOWN}
    assert standing(run_gates(run)) is not Standing.PASS
    waived = run_gates(run, waive=[gates])
    assert standing(waived) is Standing.PASS
    assert [row.id for row in waived if row.state is GateState.WAIVED] == [gates]


def test_another_process_at_the_end_fails_and_leaves_its_counts_unknown():
    run = evidence(after=server_state(start_id="b", requests=40, cached_tokens=0))
    assert broken(run) == {"one_start": GateState.FAIL, "no_other_traffic": GateState.UNKNOWN}


def test_a_death_fails_both_the_rate_and_the_crash():
    cut = [failed(40 + i, Failure.RESET, at_ms=1700 + i, collateral=i > 0) for i in range(5)]
    records = [*closed_loop(concurrency=4, waves=10), *cut]
    incidents = incidents_of(records, server_died=True)
    run = evidence(records=records, incidents=incidents, after=None)
    found = broken(run)
    assert found["zero_crash"] is GateState.FAIL
    assert found["fail_rate"] is GateState.FAIL
    row = next(row for row in run_gates(run) if row.id == "zero_crash")
    assert row.observed == "1 death, 4 further requests lost to them"
    assert standing(run_gates(run)) is Standing.INVALID


def test_a_warm_run_may_send_what_was_sent_and_a_plan_may_allow_pairs():
    shifted = {"profile": LEDGER, "ledger": window("shifted")}
    assert broken(evidence(**shifted)) == {"corpus_fresh": GateState.FAIL}
    assert broken(evidence(**shifted, role=Role.WARM)) == {}
    paired = {"profile": LEDGER, "ledger": window("paired")}
    assert broken(evidence(**paired)) == {"corpus_fresh": GateState.FAIL}
    allowed = evidence(**paired, corpus_classes=frozenset({"fresh", "paired"}))
    assert broken(allowed) == {}


def test_a_failed_gate_cannot_be_waived():
    run = evidence(records=with_record(n_cached=16))
    assert standing(run_gates(run, waive=["cache_hit_zero"])) is Standing.INVALID


def test_a_waiver_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="no gate is called cache_hits"):
        check_waivers(["cache_hits"])


def test_tokens_that_all_prompts_share_may_be_cached():
    records = [
        msgspec.structs.replace(r, n_cached=16) for r in closed_loop(concurrency=4, waves=10)
    ]
    after = server_state(requests=140, cached_tokens=7 + 640)
    assert broken(evidence(records=records, after=after, shared_tokens=16)) == {}


def test_slow_tokens_allow_a_later_client():
    runs = [record(i, gaps_ms=[100.0] * 7, send_ms=0.01 * i) for i in range(4)]
    late = ClientReport(shards=1, lag_p99_ms=4.5, cpu_share=0.1)
    assert "client_lag" not in broken(evidence(records=runs, client=late))


def test_the_answers_of_a_trace_have_lengths_of_their_own():
    trace = profile(mode=Mode.TRACE)
    assert broken(evidence(profile=trace, records=with_record(n_out=9))) == {}


def test_prompts_of_unknown_length_have_no_gate():
    runs = [msgspec.structs.replace(r, n_in_plan=None) for r in closed_loop(concurrency=4, waves=2)]
    assert "prompt_len_exact" not in states(evidence(records=runs))


def test_every_row_says_what_to_do():
    for row in run_gates(evidence(role=Role.KILLER, drift=[], log=[])):
        assert row.advice and row.evidence and row.limit and row.observed


def repeated(gate: str, *runs: RunResult, bound: float = 0.02) -> Gate:
    return {row.id: row for row in repeat_gates(Repeats(runs=runs, bound=bound))}[gate]


def test_the_bound_of_a_killer():
    runs = [result(run_id=str(wall), wall_s=wall) for wall in (105.3, 106.0)]
    held = repeated("wall_bound", *runs)
    assert held.state is GateState.OK
    assert held.observed == "0.66% apart, 0.33% from the median, 2 runs"
    assert repeated("wall_bound", *runs, bound=0.005).state is GateState.FAIL
    assert repeated("wall_bound", runs[0]).state is GateState.UNKNOWN
    ended = result(run_id="cut", why_partial="interrupted")
    assert repeated("wall_bound", *runs, ended).state is GateState.UNKNOWN


def holding(resident: int | None, gpu: int | None = None) -> RunResult:
    memory = Memory(resident_bytes=resident, gpu_bytes=gpu)
    return result(after=server_state(requests=140, cached_tokens=7, memory=memory))


@pytest.mark.parametrize(
    ("ends", "state", "observed"),
    [
        # What the first run took to begin with is no growth.
        ([(1000, None), (1009, None)], GateState.OK, "+0.90% of the processes"),
        ([(1000, None), (1005, None), (1011, None)], GateState.FAIL, "+1.10% of the processes"),
        ([(1000, 500), (1000, 506)], GateState.FAIL, "+0.00% of the processes, +1.20% of GPUs"),
        ([(1000, 500), (990, None)], GateState.OK, "-1.00% of the processes"),
        ([(None, None), (1000, None)], GateState.UNKNOWN, "the server does not tell"),
        ([(1000, None)], GateState.UNKNOWN, "1 of 1 runs came to their end"),
    ],
)
def test_memory_that_grows_over_the_runs_of_a_killer(ends, state: GateState, observed: str):
    found = repeated("memory_drift", *(holding(*end) for end in ends))
    assert (found.state, found.observed) == (state, observed)


def test_a_killer_of_a_server_that_does_not_tell_its_memory_may_waive_that():
    runs = [result(run_id=str(wall), wall_s=wall) for wall in (105.3, 106.0)]
    killer = judge_killer(runs, bound=0.02)
    assert standing(killer.gates) is Standing.INVALID
    waived = judge_killer(runs, bound=0.02, waive=["memory_drift"])
    assert [gate.state for gate in waived.gates] == [GateState.OK, GateState.WAIVED]
    check_waivers(["memory_drift", "wall_bound", "one_start"])
