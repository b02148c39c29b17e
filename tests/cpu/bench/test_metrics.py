"""What each figure means, against records whose times are known."""

import pytest

from draftmark.bench.metrics import (
    FIGURES,
    GAP_METRICS,
    REQUEST_METRICS,
    icl_ms,
    itl_ms,
    tpot_ms,
    ttft_ms,
)
from draftmark.bench.result import Basis
from tests.fakes.bench_run import MS, record

METRICS = {metric.definition.name: metric.of for metric in REQUEST_METRICS}


def test_every_figure_says_in_a_sentence_what_it_means():
    definitions = [*(m.definition for m in (*REQUEST_METRICS, *GAP_METRICS)), *FIGURES.values()]
    assert len({definition.name for definition in definitions}) == len(definitions)
    for definition in definitions:
        assert definition.means.endswith(".") and definition.means.count(".") == 1
        assert definition.name.endswith("_ms") == (definition.unit == "ms")


def test_steady_figures_are_named_so():
    for figure in FIGURES.values():
        assert (figure.basis is Basis.STEADY) == (
            figure.name.startswith("steady_") or figure.name == "step_ms"
        )


def test_times_of_a_request():
    """Reasoning at 100 ms, its answer at 900 ms, and 20 ms late of its schedule."""
    one = record(send_ms=20, t_sched=0, t_first_output=920 * MS)
    found = {name: of(one) for name, of in METRICS.items()}
    assert found == {
        "ttft_ms": 100.0,
        "ttfv_ms": 100.0,
        "ttfo_ms": 900.0,
        "tpot_ms": 10.0,
        "e2e_ms": 170.0,
        "queue_ms": 20.0,
        "ttft_sched_ms": 120.0,
        "e2e_sched_ms": 190.0,
    }


def test_capped_within_its_reasoning_it_still_has_a_first_token():
    capped = record(t_first_output=None)
    assert ttft_ms(capped) == 100.0
    assert METRICS["ttfo_ms"](capped) is None


def test_tokens_a_chunk_do_not_slow_the_tokens():
    """Ten events of three tokens, 60 ms apart: 20 ms a token, not 60."""
    known = record(gaps_ms=[60.0] * 9, event_tokens=[3] * 10)
    assert known.n_out == 30
    assert tpot_ms(known) == pytest.approx(540 / 27)
    assert icl_ms(known) == [60.0] * 9
    assert itl_ms(known) == [20.0] * 27
    untold = record(gaps_ms=[60.0] * 9, n_out=30)
    assert tpot_ms(untold) == pytest.approx(540 / 29)
    assert itl_ms(untold) is None


def test_a_first_event_of_many_tokens_is_no_decoding():
    """Four silent steps, then an event of four tokens and ten of one."""
    late = record(gaps_ms=[10.0] * 10, event_tokens=[4] + [1] * 10)
    assert tpot_ms(late) == 10.0


def test_an_answer_of_one_event_has_no_time_per_token():
    assert tpot_ms(record(gaps_ms=[])) is None
    assert tpot_ms(record(gaps_ms=[], event_tokens=[5])) is None


def test_an_event_without_a_token_ends_no_gap():
    partial_character = record(gaps_ms=[10.0, 10.0, 10.0], event_tokens=[1, 0, 1, 2])
    assert itl_ms(partial_character) == [20.0, 5.0, 5.0]


def test_what_did_not_happen_is_unknown():
    untold = record(t_send=None, t_first=None, n_out=None)
    assert ttft_ms(untold) is None
    assert tpot_ms(untold) is None
