"""Runs side by side: ratios only where both figures mean the same, refusals by name."""

import msgspec
import pytest

from draftmark.bench.profile import Objectives, PromptSource
from draftmark.bench.report.compare import NotComparable, compare, ratio
from draftmark.bench.report.markdown import comparison_markdown
from draftmark.bench.request import CountSource
from draftmark.bench.result import Basis, Figure, LedgerUse, Role
from tests.fakes.bench_result import result
from tests.fakes.bench_run import closed_loop, profile, server_state


def faster(**changes):
    return result(records=closed_loop(concurrency=4, waves=10, gaps_ms=[5.0] * 7), **changes)


def rows(comparison):
    return {row.name: row for row in comparison.rows}


def figure(value: float | None, basis: Basis = Basis.STEADY, unit: str = "ms") -> Figure:
    return Figure(unit=unit, basis=basis, n=32, value=value)


def test_ratios_are_to_the_first_run():
    found = compare([result(run_id="a"), faster(run_id="b"), result(run_id="c")])
    assert found.runs == ["a", "b", "c"]
    assert found.notes == []
    assert rows(found)["tpot_ms mean"].cells == ["10.0", "5.00", "10.0"]
    assert rows(found)["tpot_ms mean"].ratios == pytest.approx([0.5, 1.0])
    # Nothing waited: there is nothing to divide by.
    assert rows(found)["queue_ms mean"].ratios == [None, None]
    assert "goodput_req_s" not in rows(found)


def test_two_bases_are_refused_by_name():
    """A step of the steady span is no step with the stalls of whole requests in it: 235 by 148 ms
    read as 1.59 times the time, where one basis says 302 by 147, 2.05 times."""
    with pytest.raises(NotComparable, match="step_ms by tpot_step_ms mixes basis: steady against"):
        ratio(figure(235.0), figure(148.0, Basis.REQUESTS), names=("step_ms", "tpot_step_ms"))
    names = ("tpot_step_ms", "tpot_step_ms")
    one = ratio(figure(302.0, Basis.REQUESTS), figure(147.0, Basis.REQUESTS), names=names)
    assert one == pytest.approx(2.05, abs=0.005)


def test_two_units_are_refused():
    with pytest.raises(NotComparable, match="mixes unit: ms against tok/s"):
        ratio(figure(1.0), figure(1.0, unit="tok/s"), names=("step_ms", "steady_out_tok_s"))


def test_what_was_not_measured_has_no_ratio():
    assert ratio(figure(None), figure(1.0), names=("a", "b")) is None
    assert ratio(figure(1.0), figure(None), names=("a", "b")) is None


def test_a_partial_run_has_nothing_to_compare():
    with pytest.raises(NotComparable, match=r"b is partial \(interrupted\)"):
        compare([result(run_id="a"), result(run_id="b", why_partial="interrupted")])


def test_mixed_sources_of_tokens_void_a_comparison():
    records = closed_loop(concurrency=4, waves=10)
    chunks = [msgspec.structs.replace(r, n_out_source=CountSource.CHUNKS) for r in records]
    with pytest.raises(NotComparable, match="b mixes sources of its token counts: usage, chunks"):
        compare([result(run_id="a"), result(run_id="b", records=[*records[:20], *chunks[20:]])])
    with pytest.raises(NotComparable, match="two sources of token counts: a usage, b chunks"):
        compare([result(run_id="a"), result(run_id="b", records=chunks)])


def test_two_versions_of_the_metrics_are_refused():
    older = msgspec.structs.replace(result(run_id="b"), metrics_v=0)
    with pytest.raises(NotComparable, match="two versions of the metrics: a 1, b 0"):
        compare([result(run_id="a"), older])


def test_one_run_is_no_comparison():
    with pytest.raises(NotComparable, match="two runs or more"):
        compare([result()])


def test_another_profile_has_no_ratios():
    longer = result(run_id="b", profile=profile(isl=64, name="other", seed=2))
    found = compare([result(run_id="a"), longer])
    assert found.notes == ["No ratios: the profiles differ in isl (32 and 64)."]
    assert all(ratio is None for row in found.rows for ratio in row.ratios)
    assert rows(found)["ttft_ms mean"].cells == ["100", "100"]


def test_an_invalid_run_has_no_ratios():
    records = closed_loop(concurrency=4, waves=10, n_cached=16)
    found = compare([result(run_id="a"), result(run_id="b", records=records)])
    assert found.notes == ["No ratios: b is invalid (cache_hit_zero fail)."]


def test_other_prompts_are_another_profile():
    one, other = (
        result(run_id=name, profile=profile(source=PromptSource.FILE, file=f"{name}.jsonl"))
        for name in ("a", "b")
    )
    found = compare([one, other])
    assert found.notes == ["No ratios: the profiles differ in file (a.jsonl and b.jsonl)."]


def test_a_warm_run_counts_for_nothing():
    found = compare([result(run_id="a"), result(run_id="b", role=Role.WARM)])
    assert found.notes == ["No ratios: b is a warm run, which counts for nothing."]
    assert all(ratio is None for row in found.rows for ratio in row.ratios)


def test_figures_by_other_objectives_are_not_divided():
    runs = [
        result(run_id=str(limit), profile=profile(slo=Objectives(ttft_ms=limit)))
        for limit in (150.0, 200.0)
    ]
    found = compare(runs)
    assert found.notes == ["Goodput and attainment have no ratio: the objectives differ."]
    assert rows(found)["goodput_req_s"].ratios == rows(found)["attainment"].ratios == [None]
    assert rows(found)["req_s"].ratios == [1.0]


def test_other_models_are_named():
    other = server_state(requests=100, cached_tokens=7)
    found = compare([result(run_id="a"), result(run_id="b", before=msgspec.structs.replace(
        other, model="n"))])  # fmt: skip
    assert found.notes == ["Different models: m, n. Their tokens may differ, too."]
    assert rows(found)["req_s"].ratios == [1.0]


def speculating(**changes):
    counted = {"cached_tokens": 7, "verify_steps": 100, "drafted": 300}
    return result(
        before=server_state(requests=100, cached_tokens=7, verify_steps=0, drafted=0, accepted=0),
        after=server_state(requests=140, **counted, accepted=150),
        **changes,
    )


def test_acceptance_of_random_ids_is_not_that_of_text():
    window = LedgerUse(corpus="books", window=(0, 1280), klass="fresh", line_sha="0" * 64)
    text = speculating(run_id="b", profile=profile(source=PromptSource.LEDGER), ledger=window)
    found = compare([speculating(run_id="a"), text])
    assert rows(found)["accept"].cells == [
        "2.50 (random ids, by counters)",
        "2.50 (text, by counters)",
    ]
    assert rows(found)["accept"].ratios == [None]
    assert "accept has no ratio: prompts of random_ids and text are not the same." in found.notes


def test_acceptance_of_the_same_prompts_has_a_ratio():
    found = compare([speculating(run_id="a"), speculating(run_id="b")])
    assert rows(found)["accept"].ratios == [1.0]
    assert found.notes == []


def test_the_table_reads_without_being_rendered():
    text = comparison_markdown(compare([result(run_id="a"), faster(run_id="b")]))
    lines = text.splitlines()
    assert len(lines) > 20
    assert lines[0].split("|")[1:5] == [lines[0][1:21], "  unit ", "      a ", "      b "]
    assert len({len(line) for line in lines}) == 1
    assert next(line for line in lines if "tpot_ms mean" in line).endswith("0.500 |")
