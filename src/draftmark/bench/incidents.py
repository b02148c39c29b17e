"""Crash accounting: a server that dies is one incident, and what fails because of it is collateral.

Without it a replay of 881 requests that lost its server at the 178th reads as 704 failures of the
server, when it failed once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from draftmark.bench.request import Failure, RequestRecord
from draftmark.bench.result import Incident

# What a client sees of a server that is gone.
GONE = frozenset(
    {
        Failure.REFUSED,
        Failure.RESET,
        Failure.TRUNCATED_STREAM,
        Failure.CONNECT_TIMEOUT,
    }
)
# Streams cut by one death are noticed at different moments, in different processes.
_NOTICED_WITHIN_NS = 1_000_000_000


def account(
    records: Sequence[RequestRecord], deaths: Iterable[int]
) -> tuple[list[RequestRecord], list[Incident]]:
    """`deaths` are indices of requests whose failure a health probe confirmed: nobody answered.

    Returns the records with `collateral` set on every other one that failed of the same death, up
    to the first request that succeeds again, and an incident for each death. Two confirmed deaths
    with no success between them are one.
    """
    marked = {record.i: record for record in records}
    incidents: list[Incident] = []
    spared: set[int] = set()
    for index in sorted(deaths, key=lambda index: _failed_at(marked[index])):
        if marked[index].collateral:
            continue
        death = marked[index]
        spared.add(index)
        caught = [r for r in _fell_with(death, list(marked.values())) if r.i not in spared]
        for record in caught:
            marked[record.i] = msgspec.structs.replace(record, collateral=True)
        incidents.append(_incident(death, len(caught)))
    return [marked[record.i] for record in records], incidents


def _fell_with(death: RequestRecord, records: list[RequestRecord]) -> list[RequestRecord]:
    moment = _failed_at(death)
    back = min(
        (r.t_send for r in records if r.ok and r.t_send is not None and r.t_send > moment),
        default=math.inf,
    )
    return [
        record
        for record in records
        if record.i != death.i
        and record.failure in GONE
        and moment - _NOTICED_WITHIN_NS <= _failed_at(record)
        and (_failed_at(record) < back or back == math.inf)
    ]


def _incident(death: RequestRecord, num_collateral: int) -> Incident:
    assert death.failure is not None, f"request {death.i} did not fail"
    moment = _failed_at(death)
    return Incident(
        i=death.i,
        failure=death.failure,
        at_s=None if math.isinf(moment) else moment / 1e9,
        collateral=num_collateral,
        error=death.error,
    )


def _failed_at(record: RequestRecord) -> float:
    """A request that was never tried, as its server was gone, failed after all others."""
    for moment in (record.t_done, record.t_last, record.t_send, record.t_sched):
        if moment is not None:
            return float(moment)
    return math.inf
