"""How many drafts are made, what is learnt of them, and what is told of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from draftmark.cache.holding import Holding
from draftmark.core.request import FinishReason
from draftmark.core.start import CostPoint
from draftmark.core.step import ResultRow
from draftmark.scheduler.acceptance import HEALTH_ROUNDS, Acceptance
from draftmark.scheduler.admission import make_sequence
from draftmark.scheduler.costs import CostTable
from draftmark.scheduler.draft_count import DraftCount
from draftmark.scheduler.queue import Sequence as Row
from tests.cpu.scheduler.simulation import Simulation, make_request, prompt_of
from tests.fakes.worker import expected, step_ms


def window(drafted: int, emitted: int, *, done: bool = False) -> ResultRow:
    return ResultRow(1, 1, [7] * emitted, 20, emitted, done, drafted=drafted)


# Acceptance.


@pytest.mark.parametrize(
    ("row", "judged", "accepted"),
    [
        (window(3, 1), [1, 0, 0], [0, 0, 0]),
        (window(3, 2), [1, 1, 0], [1, 0, 0]),
        (window(3, 3), [1, 1, 1], [1, 1, 0]),
        (window(3, 4), [1, 1, 1], [1, 1, 1]),
        (window(2, 3), [1, 1, 0], [1, 1, 0]),
        # The sequence ended: what stands behind its last token was not asked.
        (window(3, 1, done=True), [0, 0, 0], [0, 0, 0]),
        (window(3, 2, done=True), [1, 0, 0], [1, 0, 0]),
        (window(3, 4, done=True), [1, 1, 1], [1, 1, 1]),
    ],
)
def test_a_draft_is_judged_where_all_before_it_were_right(
    row: ResultRow, judged: list[int], accepted: list[int]
) -> None:
    acceptance = Acceptance(3)
    acceptance.observe([row])
    assert (acceptance.judged, acceptance.accepted) == (judged, accepted)
    assert (acceptance.rounds, acceptance.drafted) == (1, row.drafted)


def test_windows_without_drafts_and_rows_that_were_done_say_nothing() -> None:
    acceptance = Acceptance(2)
    acceptance.observe([window(0, 1), window(2, 0, done=True)])
    assert (acceptance.rounds, acceptance.judged, acceptance.emitted) == (0, [0, 0], 0)


def observe_windows(
    acceptance: Acceptance, count: int, *, rates: Sequence[float], draw: random.Random
) -> None:
    for _ in range(count):
        acceptance.observe([window(len(rates), 1 + num_right(rates, draw))])


def num_right(rates: Sequence[float], draw: random.Random) -> int:
    """How many drafts of a window are accepted: each with its rate, if all before it are."""
    count = 0
    for rate in rates:
        if draw.random() >= rate:
            break
        count += 1
    return count


def test_rates_converge_and_forget() -> None:
    acceptance, draw = Acceptance(2), random.Random(1)
    assert acceptance.rate(1) == acceptance.rate(2) == pytest.approx(0.8)
    observe_windows(acceptance, 40, rates=(0.2, 0.9), draw=draw)
    assert acceptance.rate(1) < 0.55  # what was believed before counts little
    observe_windows(acceptance, 4000, rates=(0.2, 0.9), draw=draw)
    assert acceptance.rate(1) == pytest.approx(0.2, abs=0.08)
    assert acceptance.rate(2) == pytest.approx(0.9, abs=0.08)
    observe_windows(acceptance, 256, rates=(0.8, 0.9), draw=draw)
    assert acceptance.rate(1) == pytest.approx(0.5, abs=0.1)
    observe_windows(acceptance, 1500, rates=(0.8, 0.9), draw=draw)
    assert acceptance.rate(1) == pytest.approx(0.8, abs=0.08)


def test_what_is_not_drafted_is_not_forgotten() -> None:
    acceptance, draw = Acceptance(3), random.Random(2)
    observe_windows(acceptance, 3000, rates=(0.7, 0.7, 0.3), draw=draw)
    before = acceptance.rate(3)
    observe_windows(acceptance, 3000, rates=(0.7,), draw=draw)
    assert acceptance.rate(3) == before != 0.8


def test_the_expected_length_is_the_sum_of_chances() -> None:
    acceptance = Acceptance(3)
    observe_windows(acceptance, 700, rates=(0.8, 0.5, 0.4), draw=random.Random(3))
    first, second, third = (acceptance.rate(position) for position in (1, 2, 3))
    assert acceptance.expected(0) == 1
    assert acceptance.expected(2) == pytest.approx(1 + first + first * second)
    last = first * second * third
    assert acceptance.expected(3) == pytest.approx(1 + first + first * second + last)


@pytest.mark.parametrize(("num_right_ones", "is_low"), [(99, True), (100, True), (101, False)])
def test_acceptance_that_is_not_believable_is_found_in_time(
    num_right_ones: int, is_low: bool
) -> None:
    """The limit is 1 + 0.1 k: at one draft a window, 100 right ones of 1,000."""
    acceptance = Acceptance(1)
    rows = [window(1, 2)] * num_right_ones + [window(1, 1)] * (HEALTH_ROUNDS - num_right_ones)
    for row in rows[:-1]:
        acceptance.observe([row])
    assert acceptance.low_length is None and acceptance.num_low == 0
    acceptance.observe(rows[-1:])
    assert acceptance.num_low == is_low
    assert acceptance.low_length == (1 + num_right_ones / HEALTH_ROUNDS if is_low else None)


def test_acceptance_is_well_again_when_it_is_and_every_finding_counts() -> None:
    acceptance = Acceptance(3)
    found = []
    for emitted in (1, 1, 3, 1):
        acceptance.observe([window(3, emitted)] * HEALTH_ROUNDS)
        found.append((acceptance.low_length, acceptance.num_low))
    assert found == [(1.0, 1), (1.0, 2), (None, 2), (1.0, 3)]


# How many drafts.

Cost = Callable[[int, int], float]  # milliseconds of (rows, drafts)


def table_of(cost: Cost, *, max_drafts: int) -> CostTable:
    return CostTable(
        CostPoint(rows, 0, 100, cost(rows, drafts), drafts)
        for rows in (1, 2, 4, 8, 16, 32)
        for drafts in range(max_drafts + 1)
    )


def rows_of(count: int, *, limit: int | None = None, max_drafts: int = 4) -> list[Row]:
    return [
        make_sequence(
            make_request(i, prompt=[1], draft_tokens=limit),
            arrival=i,
            end=100,
            holding=Holding([1]),
            max_drafts=max_drafts,
        )
        for i in range(count)
    ]


class Turns:
    """Turns of one cohort: drafts are right with `rates`, a step takes what `truth` says, and
    `table` is what is known of that at the start."""

    def __init__(
        self,
        *,
        rates: Sequence[float],
        truth: Cost,
        table: Cost | None = None,
        num_stages: int = 1,
        adapts: bool = True,
        noise: float = 0.0,
    ) -> None:
        self.rates = tuple(rates)
        self.acceptance = Acceptance(len(rates))
        self.count = DraftCount(
            len(rates),
            adapts=adapts,
            costs=table_of(table or truth, max_drafts=len(rates)),
            acceptance=self.acceptance,
            num_cohorts=1,
            num_stages=num_stages,
        )
        self.chosen: list[int] = []
        self._truth = truth
        self._noise = noise
        self._draw = random.Random(5)

    def run(self, turns: int, rows: Sequence[Row]) -> list[int]:
        """The drafts of each of these turns."""
        start = len(self.chosen)
        for _ in range(turns):
            ran = self.chosen[-1] if self.chosen else 0
            drafts = self.count.choose(0, rows, context=100)
            self.count.took(0, drafts, rows=len(rows))
            self.chosen.append(drafts)
            results = []
            for row in rows:
                has = min(ran, row.max_drafts)
                results.append(window(has, 1 + num_right(self.rates[:has], self._draw)))
            self.acceptance.observe(results)
            if ran == drafts:
                noise = 1 + self._noise * self._draw.uniform(-1, 1)
                ms = self._truth(len(rows), drafts) * noise
                self.count.observe(drafts, rows=len(rows), context=100, ms=ms)
        return self.chosen[start:]

    @property
    def changes(self) -> int:
        return sum(before != after for before, after in pairwise(self.chosen))


def dear(rows: int, drafts: int) -> float:
    """A draft costs half a step."""
    return 1 + 0.5 * drafts


def cheap(rows: int, drafts: int) -> float:
    return 1 + 0.02 * drafts


def test_no_drafts_where_they_do_not_pay() -> None:
    turns = Turns(rates=(0.3, 0.3, 0.3), truth=dear)
    assert turns.run(300, rows_of(4))[-200:] == [0] * 200


def test_as_many_as_possible_where_they_pay() -> None:
    turns = Turns(rates=(0.9, 0.9, 0.9, 0.9), truth=cheap)
    assert turns.run(300, rows_of(4)) == [4] * 300


def test_as_many_as_pay_in_between() -> None:
    """The third draft is never right."""
    turns = Turns(rates=(0.9, 0.9, 0.0), truth=lambda rows, drafts: 1 + 0.2 * drafts)
    assert set(turns.run(300, rows_of(4))[-200:]) == {2}


def test_more_rows_may_want_fewer_drafts_at_once() -> None:
    turns = Turns(rates=(0.6, 0.6, 0.6), truth=step_ms)
    few, many = rows_of(1), rows_of(16)
    turns.run(100, few)
    assert turns.run(20, few) == [3] * 20
    assert turns.run(20, many) == [0] * 20
    assert turns.run(20, few) == [3] * 20


@pytest.mark.parametrize("num_rows", [1, 4, 16])
def test_equal_speeds_do_not_make_the_count_flap(num_rows: int) -> None:
    """None, one or two drafts are equally good; what is accepted and what steps take are noisy."""
    turns = Turns(rates=(0.3, 0.3), truth=lambda rows, drafts: (1, 1.3, 1.39)[drafts], noise=0.05)
    turns.run(200, rows_of(num_rows))
    settled = turns.changes
    turns.run(1000, rows_of(num_rows))
    assert turns.changes - settled <= 10


@pytest.mark.parametrize("num_rows", [1, 16])
def test_drafts_that_became_good_again_are_found(num_rows: int) -> None:
    turns = Turns(rates=(0.05, 0.05), truth=lambda rows, drafts: 1 + 0.3 * drafts)
    rows = rows_of(num_rows)
    assert turns.run(1500, rows)[-1] == 0
    # While nothing changes, few turns are spent on looking.
    looked = turns.run(4000, rows)
    assert 8 <= sum(drafts > 0 for drafts in looked) < 0.03 * len(looked)
    assert looked[-1] == 0
    turns.rates = (0.9, 0.9)
    # The next look is enough, even at one row.
    while turns.run(1, rows) == [0]:
        assert len(turns.chosen) < 1500 + 4000 + 4096
    turns.run(40, rows)
    # And now and then what a step without them takes.
    found = turns.run(1000, rows)
    assert found.count(0) <= 24 and found.count(2) == 1000 - found.count(0)


def test_limits_of_requests() -> None:
    turns = Turns(rates=(0.9,) * 4, truth=cheap)
    assert turns.run(3, rows_of(3, limit=2)) == [2] * 3
    assert turns.run(3, rows_of(3, limit=0)) == [0] * 3
    # One that may have more gets them, where they cost the others little.
    assert turns.run(20, rows_of(3, limit=1) + rows_of(1))[-1] == 4
    # What one row gains does not pay for what seven lose.
    costly = Turns(rates=(0.9,) * 4, truth=dear)
    assert costly.run(20, rows_of(7, limit=0) + rows_of(1))[-1] == 0


def test_without_adapting_it_is_the_most_that_any_row_may_have() -> None:
    turns = Turns(rates=(0.0,) * 4, truth=dear, adapts=False)
    assert turns.run(50, rows_of(4)) == [4] * 50
    assert turns.run(5, rows_of(2, limit=3) + rows_of(2, limit=0)) == [3] * 5


def test_where_nothing_was_measured_it_is_the_most() -> None:
    count = DraftCount(
        3,
        adapts=True,
        costs=CostTable([]),
        acceptance=Acceptance(3),
        num_cohorts=1,
        num_stages=1,
    )
    assert count.choose(0, rows_of(2), context=10) == 3
    assert count.break_even(2, context=10) == []


@pytest.mark.parametrize("num_stages", [1, 2])
def test_what_steps_take_corrects_the_table_on_one_stage(num_stages: int) -> None:
    """By the table drafts are for nothing; in truth each costs half a step, and pays for nobody.
    With several stages the last one's time says nothing, and the table stands."""
    turns = Turns(rates=(0.4, 0.4), truth=dear, table=lambda rows, drafts: 1, num_stages=num_stages)
    assert turns.run(100, rows_of(4))[-1] == 2
    turns.run(8, rows_of(4, limit=0))  # now it is known what a step without takes
    turns.run(20, rows_of(4))
    assert set(turns.run(100, rows_of(4))) == ({0} if num_stages == 1 else {2})


def test_a_table_that_takes_drafts_for_free_is_found_out() -> None:
    """Nothing but drafts has ever run: a step without is tried after a while."""
    turns = Turns(rates=(0.4, 0.4), truth=dear, table=lambda rows, drafts: 1)
    assert turns.run(400, rows_of(4)) == [2] * 400
    turns.run(200, rows_of(4))
    assert turns.run(400, rows_of(4)) == [0] * 400


@pytest.mark.parametrize(("num_stages", "factor"), [(1, 2.0), (2, 1.0)])
def test_break_even_is_the_time_of_a_step_over_that_without(num_stages: int, factor: float) -> None:
    turns = Turns(rates=(0.5,) * 3, truth=dear, num_stages=num_stages)
    count = turns.count
    assert count.break_even(4, context=100) == pytest.approx([1.5, 2.0, 2.5])
    assert turns.acceptance.expected(1) > 1.5  # by belief the first draft pays
    for _ in range(8):
        count.observe(0, rows=4, context=100, ms=1.0)
        count.observe(3, rows=4, context=100, ms=factor * 2.5)
        count.observe(3, rows=4, context=100, ms=100.0)  # a disturbed step is no matter
        count.observe(3, rows=4, context=100, ms=factor * 2.5)
    # What ran nearest tells of the others: two of three, and of one draft the step without.
    told = [1.5, 2.0 * factor, 2.5 * factor]
    assert count.break_even(4, context=100) == pytest.approx(told)


def test_turns_and_gaps_are_counted_when_they_are_planned() -> None:
    turns = Turns(rates=(0.5,) * 2, truth=cheap, adapts=False)
    count = turns.count
    for _ in range(3):
        count.choose(0, rows_of(2), context=1)
    assert count.turns == [0, 0, 0] and count.num_gaps == 0
    for drafts, rows in [(2, 3), (0, 3), (0, 3), (1, 4), (2, 4), (0, 4), (2, 5)]:
        count.took(0, drafts, rows=rows)
    assert count.turns == [3, 1, 3]
    assert count.num_gaps == 4 + 5


# What comes of it.


def drafting(**limits: object) -> Simulation:
    arguments = {"max_drafts": 3, "prefill_tokens": 64, **limits}
    return Simulation(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("num_cohorts", [1, 2, 3, 4])
@pytest.mark.parametrize("max_drafts", [1, 2, 4])
@pytest.mark.parametrize("length", [1, 5, 16, 31, 32])
def test_a_request_with_drafts_gives_what_it_gives_without(
    length: int, max_drafts: int, num_cohorts: int
) -> None:
    simulation = drafting(max_drafts=max_drafts, num_cohorts=num_cohorts)
    for index, max_tokens in enumerate((1, 2, max_drafts + 1, 17, 60)):
        prompt = prompt_of(length, salt=index)
        simulation.add(make_request(index, prompt=prompt, max_tokens=max_tokens, logprobs=1))
    simulation.run()
    simulation.check_answers()
    simulation.check_drafts()
    simulation.check_idle()
    stats = simulation.scheduler.stats().drafts
    assert stats is not None and 0 < stats.accepted < stats.drafted


def test_drafts_save_steps() -> None:
    steps = []
    for max_drafts in (0, 3):
        simulation = drafting(max_drafts=max_drafts)
        simulation.add(make_request(1, prompt=prompt_of(5), max_tokens=200))
        simulation.run()
        simulation.check_answers()
        steps.append(len(simulation.plans))
    assert steps[1] < 0.6 * steps[0]


@pytest.mark.parametrize("num_cohorts", [1, 3])
def test_a_stop_id_inside_an_accepted_run_ends_there(num_cohorts: int) -> None:
    simulation = drafting(num_cohorts=num_cohorts, max_drafts=4)
    for index in range(20):
        request = make_request(
            index, prompt=prompt_of(9, salt=index), max_tokens=80, stop_ids=range(4), min_tokens=3
        )
        simulation.add(request)
    simulation.run()
    simulation.check_answers()
    simulation.check_drafts()
    assert any(window.judged == window.accepted < window.drafted for window in simulation.windows)
    finishes = {simulation.finish_of(index) for index in range(20)}
    assert FinishReason.STOP in finishes


@pytest.mark.parametrize("index", range(8, 16))
def test_a_host_end_inside_an_accepted_run_delivers_nothing_beyond(index: int) -> None:
    """A window may be longer than what is left: its last tokens are never handed out."""
    simulation = drafting(max_drafts=4, max_in_flight=1)
    request = make_request(3, prompt=prompt_of(9, salt=3), max_tokens=100, logprobs=0, stop=["x"])
    simulation.add(request)
    simulation.step()
    simulation.finish(3, index, FinishReason.STOP)
    simulation.run()
    answer = simulation.answers[3]
    assert answer.tokens == expected(request, most=index).tokens
    assert len(answer.logprobs) == index
    assert simulation.scheduler.stats().output_tokens == index
    simulation.check_drafts()
    simulation.check_idle()


def test_windows_after_the_end_are_not_the_requests_but_count() -> None:
    simulation = drafting(max_in_flight=3)
    simulation.add(make_request(1, prompt=prompt_of(5), max_tokens=200))
    for _ in range(10):
        simulation.step()
    while simulation.plan() is not None:
        pass
    simulation.abort(1)
    end = simulation.answers[1].end
    assert end is not None and end.drafts is not None
    simulation.run()
    stats = simulation.scheduler.stats().drafts
    assert stats is not None and stats.windows > end.drafts.windows
    simulation.check_drafts()


def test_only_with_stop_strings_every_output_says_what_there_was_so_far() -> None:
    for stop in ((), ("x",)):
        simulation = drafting()
        simulation.add(make_request(1, prompt=prompt_of(5), max_tokens=60, stop=stop))
        simulation.run()
        simulation.check_drafts()
        *sofar, last = simulation.answers[1].uses
        assert last is not None and last.windows > 5
        if stop:
            seen = [use for use in sofar if use is not None]
            assert len(seen) > 5
            assert all(a.windows <= b.windows for a, b in pairwise([*seen, last]))
        else:
            assert set(sofar) == {None}


def test_requests_may_want_fewer_drafts() -> None:
    simulation = drafting(max_drafts=4)
    for index, limit in enumerate((0, 1, 3, None)):
        prompt = prompt_of(9, salt=index)
        simulation.add(make_request(index, prompt=prompt, max_tokens=60, draft_tokens=limit))
    simulation.run()
    simulation.check_answers()
    simulation.check_drafts()
    most = {
        index: max((window.drafted for window in simulation.windows_of.get(index, [])), default=0)
        for index in range(4)
    }
    assert most == {0: 0, 1: 1, 2: 3, 3: 4}


@pytest.mark.parametrize("num_cohorts", [1, 2])
def test_what_just_fits_the_pool_runs_with_drafts(num_cohorts: int) -> None:
    """No room for drafts is asked beyond a sequence's end."""
    simulation = drafting(num_pages=5, max_drafts=4, num_cohorts=num_cohorts)
    simulation.add(make_request(1, prompt=prompt_of(20), max_tokens=44))
    simulation.add(make_request(2, prompt=prompt_of(63, salt=1), max_tokens=1))
    simulation.run()
    simulation.check_answers()
    simulation.check_idle()


def test_the_count_follows_the_load() -> None:
    """Drafts for a few rows, none for many, and drafts again when the many are gone."""
    table = [
        CostPoint(rows, 0, 50, step_ms(rows, drafts), drafts)
        for rows in (1, 4, 16)
        for drafts in range(4)
    ]
    simulation = drafting(
        num_pages=400, num_slots=20, max_running=17, adapts_drafts=True, cost_table=table
    )
    simulation.checks = False
    simulation.add(make_request(0, prompt=prompt_of(5), max_tokens=400))
    for _ in range(30):
        simulation.step()
    assert simulation.plans[-1].draft_k == 3
    for index in range(1, 15):
        simulation.add(make_request(index, prompt=prompt_of(5, salt=index), max_tokens=40))
    for _ in range(30):
        simulation.step()
    assert (simulation.plans[-1].draft_k, simulation.plans[-1].verify_k) == (0, 0)
    simulation.run()
    assert simulation.plans[-1].draft_k == 3
    simulation.check_answers()
    simulation.check_drafts()
    stats = simulation.scheduler.stats().drafts
    assert stats is not None and stats.gaps > 0
    assert stats.break_even == pytest.approx([1.02, 1.04, 1.06], abs=0.05)
