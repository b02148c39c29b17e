"""One death is one incident, and what fails because of it is collateral."""

from draftmark.bench.incidents import account
from draftmark.bench.request import Failure
from tests.fakes.bench_run import failed, record


def test_a_dead_server_is_one_incident():
    """94 answers, a stream cut, 15 others cut with it, 704 refused, some of them never tried."""
    answered = [record(i, send_ms=i) for i in range(94)]
    cut = [failed(94 + i, Failure.RESET, at_ms=500 + i, error="reset") for i in range(16)]
    refused = [failed(110 + i, Failure.REFUSED, at_ms=600 + i) for i in range(700)]
    untried = [failed(810 + i, Failure.REFUSED, at_ms=None) for i in range(4)]
    records, incidents = account([*answered, *cut, *refused, *untried], [94])
    assert [(found.i, found.failure, found.collateral) for found in incidents] == [
        (94, Failure.RESET, 719)
    ]
    assert incidents[0].at_s == 0.5
    assert incidents[0].error == "reset"
    assert [r.i for r in records if not r.ok and not r.collateral] == [94]
    assert [r.i for r in records] == list(range(814))


def test_a_server_that_came_back_and_died_again_is_two():
    records, incidents = account(
        [
            failed(0, Failure.RESET, at_ms=100),
            failed(1, Failure.REFUSED, at_ms=110),
            record(2, send_ms=2000),
            failed(3, Failure.RESET, at_ms=3000),
            failed(4, Failure.REFUSED, at_ms=3010),
        ],
        [0, 3],
    )
    assert [(found.i, found.collateral) for found in incidents] == [(0, 1), (3, 1)]
    assert [r.collateral for r in records] == [False, True, False, False, True]


def test_the_same_death_confirmed_twice_is_one():
    _, incidents = account(
        [failed(i, Failure.REFUSED, at_ms=100 + i) for i in range(4)], [2, 0]
    )  # fmt: skip
    assert [(found.i, found.collateral) for found in incidents] == [(0, 3)]


def test_failures_of_another_kind_stand_for_themselves():
    records, incidents = account(
        [
            failed(0, Failure.HTTP_5XX, at_ms=90),
            failed(1, Failure.RESET, at_ms=100),
            failed(2, Failure.SHORT_OUTPUT, at_ms=120),
        ],
        [1],
    )
    assert incidents[0].collateral == 0
    assert not any(r.collateral for r in records)


def test_long_before_the_death_is_not_because_of_it():
    records, _ = account(
        [failed(0, Failure.RESET, at_ms=100), failed(1, Failure.RESET, at_ms=5000)], [1]
    )
    assert not records[0].collateral


def test_a_reset_alone_is_no_death():
    records, incidents = account([failed(0, Failure.RESET, at_ms=100), record(1)], [])
    assert incidents == []
    assert not records[0].collateral


def test_what_the_client_marked_stays_marked():
    marked = failed(1, Failure.REFUSED, at_ms=None, collateral=True)
    records, incidents = account([failed(0, Failure.RESET, at_ms=100), marked], [0])
    assert records[1].collateral
    assert incidents[0].collateral == 1
