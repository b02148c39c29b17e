"""Tables and gates of quality, suite, comparisons: what a reader sees of them."""

from __future__ import annotations

from draftmark.bench.conc import ConcResult, Kind, Outcome, Word
from draftmark.bench.declared import Difference
from draftmark.bench.quality import QualityResult, compare_paired
from draftmark.bench.quality.gates import no_degenerate, non_inferior, same_start
from draftmark.bench.quality.quick import QuickResult, QuickRow
from draftmark.bench.quality.run import Item
from draftmark.bench.report.table import table
from draftmark.bench.result import Drift, DriftState, GateState
from draftmark.bench.suite import SuiteResult, SuiteRow, compare_suites, no_new_failure
from draftmark.bench.tables import (
    conc_table,
    difference_table,
    drift_table,
    quality_text,
    quick_table,
    suite_comparison_table,
    suite_table,
)


def test_cells_are_padded_and_cannot_break_the_table() -> None:
    shown = table(["a", "bcd"], [[None, "x | y\nz"], [1.23456, "w" * 200]])
    lines = shown.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[2].startswith("| -     | x \\| y z ")
    assert lines[3].startswith("| 1.235 | www")
    assert "w... |" in lines[3]
    numbers = table(["a", "bcd"], [["x", 7]], numbers=True).splitlines()
    assert numbers[1:] == ["| -- | --: |", "| x  |   7 |"]


def _row(one: str, *, passed: bool, seconds: float | None, tokens: int | None) -> SuiteRow:
    return SuiteRow(
        id=one,
        title="t",
        passed=passed,
        seconds=seconds,
        http=200,
        content=5,
        reasoning=0,
        tools=["f"],
        finish="stop",
        tokens=tokens,
        chunks=3,
        faults=[] if passed else ["it is wrong"],
        excerpt="",
    )


def _suite(*rows: SuiteRow) -> SuiteResult:
    return SuiteResult(model="m", start_id=None, passed=1, failed=1, rows=list(rows))


def test_the_suite_and_its_comparison() -> None:
    then = _suite(
        _row("a", passed=True, seconds=1.0, tokens=10),
        _row("b", passed=True, seconds=1.0, tokens=9),
    )
    now = _suite(
        _row("a", passed=True, seconds=2.0, tokens=10),
        _row("b", passed=False, seconds=None, tokens=9),
    )
    shown = suite_table(now)
    assert "content[5]" in shown and "it is wrong" in shown and "FAIL" in shown
    compared = compare_suites(now, then)
    shown = suite_comparison_table(compared)
    assert "1 cases compared: +1.00 s, of it +0.00 s by the number of tokens" in shown
    assert "broken: b" in shown
    gate = no_new_failure(compared, evidence="suite.json")
    assert (gate.state, gate.observed) == (GateState.FAIL, "broken: b")
    assert no_new_failure(compare_suites(then, then), evidence="").state is GateState.OK
    missing = no_new_failure(compare_suites(_suite(), then), evidence="")
    assert (missing.state, missing.observed) == (GateState.UNKNOWN, "not run: a, b")


def _quality(
    *, failed: int = 0, degenerate: bool = False, start: str | None = "s"
) -> QualityResult:
    item = Item(
        id="p",
        sha="",
        correct=None if failed else True,
        marked=True,
        finish="stop",
        tokens=1,
        failure=None,
        degenerate=["noise"] if degenerate else [],
        text="",
    )
    return QualityResult(
        task="t",
        model="m",
        start_id=start,
        fields={},
        n=10,
        correct=9,
        failed=failed,
        marked=10,
        degenerate=int(degenerate),
        share=None if failed else 0.9,
        low=None if failed else 0.6,
        high=None if failed else 1.0,
        items=[item],
    )


def test_quality_is_told_with_its_interval_or_not_at_all() -> None:
    paired = compare_paired(n=100, gained=1, lost=3)
    shown = quality_text(_quality(), paired)
    assert "9 of 10 right, 90.0% (95 % interval 60.0% to 100.0%)" in shown
    assert "1 gained, 3 lost, difference -2.00%" in shown
    assert "%" not in quality_text(_quality(failed=1))


def test_gates_of_quality() -> None:
    sound = compare_paired(n=1000, gained=2, lost=2)
    states = [
        non_inferior(pair, margin=0.02, evidence="").state
        for pair in (sound, compare_paired(n=100, gained=0, lost=9), None)
    ]
    assert states == [GateState.OK, GateState.FAIL, GateState.UNKNOWN]
    states = [
        no_degenerate(result, evidence="").state
        for result in (_quality(), _quality(degenerate=True), _quality(failed=1))
    ]
    assert states == [GateState.OK, GateState.FAIL, GateState.UNKNOWN]
    states = [
        same_start(_quality(start=start), "s", evidence="").state for start in ("s", "r", None)
    ]
    assert states == [GateState.OK, GateState.FAIL, GateState.UNKNOWN]


def test_the_other_tables() -> None:
    quick = QuickRow(name="fact", passed=False, faults=["Paris is not named"], answer="London")
    assert "0/1" in quick_table(QuickResult(model="m", passed=0, of=1, rows=[quick]))
    outcome = Outcome(round=1, index=2, kind=Kind.LONG, word=Word.TIE, at=3, margin=0.01)
    conc = ConcResult(
        model="m",
        in_flight=4,
        rounds=1,
        tie_nats=0.05,
        equal=3,
        ties=1,
        differs=0,
        failed=0,
        left_out=["tools: refused"],
        outcomes=[outcome],
    )
    assert "left out: tools: refused" in conc_table(conc)
    assert "| long | tie | 3 " in conc_table(conc)
    rows = [
        Drift(key="a", state=DriftState.DIFFERS, declared=1, effective=2),
        Drift(key="b", state=DriftState.IMPLICIT, effective=3),
    ]
    assert "1 differs, 0 missing, 1 implicit" in drift_table(rows)
    assert "| b " not in drift_table(rows)
    assert "| b " in drift_table(rows, with_implicit=True)
    assert "| tp " in difference_table([Difference("tp", 1, None)], names=("x", "y"))
    assert difference_table([], names=("x", "y")) == "x and y tell no difference"
