"""One death is one incident, and what fails because of it is collateral."""

from draftmark.bench.incidents import incidents_of
from draftmark.bench.request import Failure
from tests.fakes.bench_run import failed, record


def test_a_dead_server_is_one_incident():
    """94 answers, a stream cut, 15 others cut with it, 704 refused, some of them never tried."""
    answered = [record(i, send_ms=i) for i in range(94)]
    cut = failed(94, Failure.RESET, at_ms=500, error="reset")
    with_it = [failed(95 + i, Failure.RESET, at_ms=501 + i, collateral=True) for i in range(15)]
    refused = [failed(110 + i, Failure.REFUSED, at_ms=600, collateral=True) for i in range(700)]
    untried = [failed(810 + i, Failure.REFUSED, at_ms=None, collateral=True) for i in range(4)]
    found = incidents_of([*answered, cut, *with_it, *refused, *untried], server_died=True)
    assert [(one.i, one.failure, one.collateral) for one in found] == [(94, Failure.RESET, 719)]
    assert (found[0].at_s, found[0].error) == (0.5, "reset")


def test_a_reset_alone_is_no_death():
    assert incidents_of([failed(0, Failure.RESET, at_ms=100), record(1)], server_died=False) == []


def test_connections_that_broke_before_are_not_the_death():
    runs = [
        failed(0, Failure.RESET, at_ms=100),
        record(1),
        failed(2, Failure.HTTP_5XX, at_ms=400),
        failed(3, Failure.TRUNCATED_STREAM, at_ms=300),
        failed(4, Failure.REFUSED, at_ms=301, collateral=True),
    ]
    found = incidents_of(runs, server_died=True)
    assert [(one.i, one.collateral) for one in found] == [(3, 1)]
