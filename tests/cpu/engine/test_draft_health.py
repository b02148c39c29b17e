"""A drafter that is of no use is said once, and once that it is of use again."""

from __future__ import annotations

import logging

import pytest

from draftmark.core.messages import DraftStats
from draftmark.core.step import ResultRow
from draftmark.engine.draft_health import DraftHealth
from draftmark.scheduler.acceptance import HEALTH_ROUNDS, Acceptance

DRAFTS = 3


class Drafter:
    """Windows of which each accepts so many drafts, counted by the scheduler's own rule."""

    def __init__(self) -> None:
        self.acceptance = Acceptance(DRAFTS)
        self.health = DraftHealth()

    def run(self, windows: int, *, accepted: int) -> None:
        row = ResultRow(
            slot=1,
            generation=1,
            emitted=[7] * (accepted + 1),
            length=9,
            fold=accepted + 1,
            done=False,
            drafted=DRAFTS,
        )
        for _ in range(windows):
            self.acceptance.observe([row])

    def look(self) -> None:
        found = self.acceptance
        self.health.look(
            DraftStats(
                windows=found.rounds,
                drafted=found.drafted,
                accepted=sum(found.accepted),
                judged_at=found.judged,
                accepted_at=found.accepted,
                turns=[],
                gaps=0,
                verify_us=0,
                draft_us=0,
                break_even=[],
                low_length=found.low_length,
                num_low=found.num_low,
            )
        )


@pytest.fixture(autouse=True)
def every_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="draftmark.engine.draft_health")


def test_one_warning_while_it_lasts_and_one_line_at_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    drafter = Drafter()
    drafter.run(HEALTH_ROUNDS - 1, accepted=0)
    drafter.look()
    assert not caplog.records
    for _ in range(3):
        drafter.run(HEALTH_ROUNDS, accepted=0)
        drafter.look()
        drafter.look()
    [warning] = caplog.records
    assert warning.levelno == logging.WARNING
    said = warning.getMessage()
    assert f"1.00 tokens a window over {HEALTH_ROUNDS} windows" in said
    assert all(
        words in said for words in ("another checkpoint", "cannot be guessed", "--draft none")
    )
    assert drafter.acceptance.num_low == 3
    drafter.run(2 * HEALTH_ROUNDS, accepted=2)
    drafter.look()
    drafter.look()
    [_, relief] = caplog.records
    assert (relief.levelno, relief.getMessage()[:26]) == (
        logging.INFO,
        "drafts are accepted again:",
    )
    drafter.run(2 * HEALTH_ROUNDS, accepted=0)
    drafter.look()
    assert [line.levelno for line in caplog.records] == [
        logging.WARNING,
        logging.INFO,
        logging.WARNING,
    ]


def test_what_was_over_before_anybody_looked_is_told(caplog: pytest.LogCaptureFixture) -> None:
    drafter = Drafter()
    drafter.run(HEALTH_ROUNDS, accepted=0)
    drafter.run(HEALTH_ROUNDS, accepted=3)
    drafter.look()
    assert [line.levelno for line in caplog.records] == [logging.WARNING, logging.INFO]
    assert "hardly more than one token a window" in caplog.records[0].getMessage()


def test_good_drafts_and_none_at_all_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    drafter = Drafter()
    drafter.run(5 * HEALTH_ROUNDS, accepted=1)
    drafter.look()
    DraftHealth().look(None)
    assert not caplog.records
