"""Decisions as functions: estimates, the prompt budget of a step, who shares it, who yields, when
cohorts are uneven, where prompts leave snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.core.start import CostPoint
from draftmark.scheduler.costs import CostTable
from draftmark.scheduler.policy import (
    Limits,
    Share,
    is_uneven,
    part_of_turn,
    prefill_budget,
    snapshot_positions,
    victim,
)

LIMITS = Limits(max_context=4096, max_running=8, prefill_tokens=512)
# 2 ms a decode row at no context and 1 ms more a 1,000 tokens of it; 1 ms a prefill token.
TABLE = CostTable(
    [
        CostPoint(rows, 0, context, rows * (2 + context / 1000))
        for rows in (1, 4, 16)
        for context in (0, 2000)
    ]
    + [CostPoint(0, tokens, 0, float(tokens)) for tokens in (16, 64, 256)]
)


@pytest.mark.parametrize(
    ("verify", "prefill", "ms"),
    [
        ((0, 0), (0, 0), 0.0),
        ((1, 0), (0, 0), 2.0),
        ((2, 1000), (0, 0), 6.0),
        ((8, 500), (0, 0), 20.0),
        ((32, 0), (0, 0), 64.0),
        ((1, 4000), (0, 0), 6.0),
        ((0, 0), (4, 0), 16.0),  # less than the least measured costs as much
        ((0, 0), (40, 0), 40.0),
        ((0, 0), (512, 900), 512.0),
        ((1, 0), (64, 0), 66.0),
    ],
)
def test_estimates(verify: tuple[int, int], prefill: tuple[int, int], ms: float) -> None:
    assert TABLE.ms(verify=verify, prefill=prefill) == pytest.approx(ms)


def test_one_point_is_scaled() -> None:
    table = CostTable([CostPoint(0, 100, 0, 50.0)])
    assert table.ms(verify=(3, 0), prefill=(400, 0)) == pytest.approx(200.0)
    assert not table.is_empty
    assert CostTable([]).is_empty


@pytest.mark.parametrize(
    ("turn_ms", "rows", "tokens"),
    [
        (None, 4, 512),
        (50.0, 0, 512),
        (50.0, 4, 42),
        (108.0, 4, 100),
        (9.0, 4, 16),  # nothing fits: still a page, or the prompt would never advance
        (10_000.0, 4, 512),
    ],
)
def test_the_turn_limits_prefill_only_beside_decoding(
    turn_ms: float | None, rows: int, tokens: int
) -> None:
    limits = Limits(max_context=4096, max_running=8, prefill_tokens=512, max_turn_ms=turn_ms)
    assert prefill_budget(limits, TABLE, verify=(rows, 0), prefill_context=0) == tokens


def test_without_a_cost_table_the_turn_cannot_be_kept() -> None:
    limits = Limits(max_context=4096, max_running=8, prefill_tokens=512, max_turn_ms=1.0)
    assert prefill_budget(limits, CostTable([]), verify=(4, 0), prefill_context=0) == 512


def test_a_budget_below_a_page_is_kept() -> None:
    limits = Limits(max_context=4096, max_running=8, prefill_tokens=5, max_turn_ms=1.0)
    assert prefill_budget(limits, TABLE, verify=(4, 0), prefill_context=0) == 5


def shared(
    budget: int, *prompts: tuple[int, int], most: Mapping[int, int] | None = None
) -> list[int]:
    """What each of (priority, remaining) gets, in order; `most` says which are cut, and where."""
    share, takes = Share(budget), []
    for index, (priority, remaining) in enumerate(prompts):
        cut = (most or {}).get(index, remaining)
        tokens = 0
        if not share.is_spent:
            tokens = share.offer(priority=priority, remaining=remaining, most=cut)
        if tokens:
            share.accept(priority=priority, remaining=remaining, most=cut, tokens=tokens)
        takes.append(tokens)
    if takes:
        takes[0] = share.first_tokens
    return takes


@pytest.mark.parametrize(
    ("prompts", "takes"),
    [
        ([(0, 30)], [30]),
        ([(0, 300)], [100]),
        ([(0, 30), (0, 30), (0, 60)], [30, 30, 40]),
        ([(0, 1000), (0, 1000)], [100, 0]),  # no use in slowing both
        ([(0, 1000), (0, 20)], [80, 20]),
        ([(0, 1000), (0, 900)], [75, 25]),
        ([(0, 1000), (0, 20), (0, 20)], [75, 20, 5]),
        ([(0, 1000), (0, 1000), (0, 9)], [91, 0, 9]),
        ([(-1, 1000), (0, 20)], [100, 0]),  # a lower priority does not take from a higher
        ([(-1, 90), (0, 20)], [90, 10]),
    ],
)
def test_sharing(prompts: list[tuple[int, int]], takes: list[int]) -> None:
    assert shared(100, *prompts) == takes


def test_what_a_cut_chunk_leaves_goes_to_the_others() -> None:
    long, short = (0, 1000), (0, 20)
    assert shared(100, long, long, most={0: 30}) == [30, 70]
    assert shared(100, long, long, short, most={0: 30, 1: 16}) == [30, 16, 20]
    assert shared(100, long, long, most={0: 100}) == [100, 0]
    # One that is cut is not thereby a short one.
    assert shared(100, long, long, short, most={1: 16}) == [80, 0, 20]
    assert shared(100, long, (0, 900), most={1: 16}) == [84, 16]


def positions(
    *, usable: int = 0, matched: int = 0, num_prompt: int, history: int | None = None
) -> list[int]:
    limits = Limits(max_context=1 << 15, max_running=1, prefill_tokens=1)
    return snapshot_positions(
        limits, usable=usable, matched=matched, num_prompt=num_prompt, history=history
    )


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        ({"num_prompt": 64}, []),  # the last token is never restored
        ({"num_prompt": 65}, [64]),
        ({"num_prompt": 520}, [512]),
        ({"num_prompt": 520, "history": 511}, [448]),
        ({"num_prompt": 520, "history": 600}, [512]),
        ({"num_prompt": 520, "history": 63}, []),
        ({"num_prompt": 520, "matched": 320}, [320, 512]),
        ({"num_prompt": 520, "matched": 336}, [336, 512]),  # pages of 16, not of 64
        ({"num_prompt": 520, "matched": 48}, [512]),
        ({"num_prompt": 520, "matched": 512}, [512]),
        ({"num_prompt": 520, "matched": 320, "usable": 320}, [512]),
        ({"num_prompt": 520, "matched": 368, "usable": 320}, [512]),
        ({"num_prompt": 520, "matched": 384, "usable": 320}, [384, 512]),
        ({"num_prompt": 520, "matched": 512, "usable": 464}, []),
        ({"num_prompt": 520, "matched": 800, "usable": 320}, [512]),  # resumed: its own output
        ({"num_prompt": 8192}, [8128]),
        ({"num_prompt": 8193}, [8192]),
        ({"num_prompt": 20_000, "history": 19_000}, [8192, 16_384, 18_944]),
        ({"num_prompt": 20_000, "matched": 9008, "usable": 8192}, [9008, 16_384, 19_968]),
        ({"num_prompt": 20_000, "matched": 9008, "usable": 8176}, [8192, 9008, 16_384, 19_968]),
    ],
)
def test_where_a_prompt_leaves_snapshots(facts: dict[str, int], found: list[int]) -> None:
    assert positions(**facts) == found


@given(
    st.integers(1, 30_000),
    st.integers(0, 1900),
    st.integers(0, 1900),
    st.none() | st.integers(0, 30_000),
)
def test_positions_rise_beyond_the_hit_and_end_before_the_last_token(
    num_prompt: int, pages: int, more: int, history: int | None
) -> None:
    usable = min(pages * 16, (num_prompt - 1) // 16 * 16)
    found = positions(
        usable=usable, matched=usable + more * 16, num_prompt=num_prompt, history=history
    )
    assert found == sorted(set(found))
    assert all(usable < position < num_prompt and position % 16 == 0 for position in found)
    assert len(found) <= 2 + num_prompt // 8192


@given(
    st.integers(1, 300),
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 600)), min_size=1, max_size=8),
)
def test_sharing_spends_the_budget_and_the_first_gets_most(
    budget: int, prompts: list[tuple[int, int]]
) -> None:
    takes = shared(budget, *prompts)
    remaining = [left for _, left in prompts]
    assert all(0 <= take <= left for take, left in zip(takes, remaining, strict=True))
    assert sum(takes) <= budget
    assert takes[0] >= min(remaining[0], budget - budget // 4)
    assert sum(takes) == min(budget, sum(remaining)) or takes[0] == remaining[0] < budget


@dataclass
class Ordered:
    order: tuple[int, int]


def test_the_victim_is_the_lowest_priority_then_the_latest() -> None:
    old, late, low = Ordered((0, 1)), Ordered((0, 9)), Ordered((1, 2))
    assert victim([[], [old, late]]) is late
    assert victim([[low], [old, late]]) is low
    assert victim([[late], [old]]) is late
    assert victim([[], [old], []]) is old
    assert victim([[], [old], [low], [late]]) is low


@pytest.mark.parametrize(
    ("budget", "left", "num_cohorts", "tokens"),
    [
        (2048, 100_000, 4, 2048),
        (2048, 2000, 4, 500),
        (2048, 2000, 2, 1000),
        (2048, 2000, 1, 2000),
        (2048, 600, 4, 300),  # into two, not four
        (2048, 400, 4, 400),
        (2048, 20, 4, 256),  # room for who comes during the round
        (100, 2000, 4, 100),
        (100, 20, 2, 100),
    ],
)
def test_what_is_left_is_divided_among_the_turns_of_a_round(
    budget: int, left: int, num_cohorts: int, tokens: int
) -> None:
    assert part_of_turn(budget, left=left, num_cohorts=num_cohorts) == tokens


@given(st.integers(1, 4096), st.integers(0, 20_000), st.integers(1, 4))
def test_a_round_takes_what_is_left_as_far_as_its_budgets_go(
    budget: int, left: int, num_cohorts: int
) -> None:
    tokens = part_of_turn(budget, left=left, num_cohorts=num_cohorts)
    assert 1 <= tokens <= budget
    assert tokens * num_cohorts >= min(left, budget * num_cohorts)


@pytest.mark.parametrize(
    ("rows", "uneven"),
    [
        ([5], False),
        ([0, 1], False),
        ([0, 2], True),
        ([14, 16], True),
        ([15, 17], False),  # no more than an eighth of the mean
        ([30, 34], False),
        ([30, 35], True),
        ([8, 9, 8, 9], False),
        ([8, 9, 8, 10], True),
        ([20, 20, 20, 22], False),
        ([0, 0, 0], False),
    ],
)
def test_cohorts_are_uneven_beyond_a_row_and_an_eighth(rows: list[int], uneven: bool) -> None:
    assert is_uneven(rows) is uneven


def test_state_is_saved_at_the_end_of_pages_only() -> None:
    with pytest.raises(ValueError, match="multiples of 16"):
        Limits(max_context=10, max_running=1, prefill_tokens=1, snapshot_grain=40)


def test_plans_in_flight_are_one_more_than_cohorts_unless_said() -> None:
    def depth(**given: int) -> int:
        return Limits(max_context=10, max_running=1, prefill_tokens=1, **given).depth

    assert [depth(), depth(num_cohorts=3), depth(num_cohorts=3, max_in_flight=1)] == [2, 4, 1]


@pytest.mark.parametrize("wrong", [{"max_running": 0}, {"max_in_flight": 0}, {"num_cohorts": 0}])
def test_limits_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Limits(**{"max_context": 10, "max_running": 1, "prefill_tokens": 1, **wrong})


def test_more_drafts_never_take_less() -> None:
    """A step without drafts that a busy neighbour slowed is not slower than one with."""
    table = CostTable(
        [CostPoint(1, 0, 0, ms, drafts) for drafts, ms in ((0, 9.0), (1, 4.0), (3, 12.0))]
    )
    taken = [table.ms(verify=(1, 0), prefill=(0, 0), drafts=drafts) for drafts in (0, 1, 3)]
    assert taken == [9.0, 9.0, 12.0]
