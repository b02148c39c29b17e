"""Crash accounting: a server that dies is one incident, and what fails because of it is collateral.

Without it a replay of 881 requests that lost its server at the 178th reads as 704 failures of the
server, when it failed once. Whether it died is for the client to find out: a health probe says so,
not a connection that broke.
"""

from __future__ import annotations

from collections.abc import Sequence

from draftmark.bench.request import Failure, RequestRecord
from draftmark.bench.result import Incident

# What a client sees of a server that is gone.
GONE = frozenset(
    {Failure.REFUSED, Failure.RESET, Failure.CONNECT_TIMEOUT, Failure.TRUNCATED_STREAM}
)


def incidents_of(records: Sequence[RequestRecord], *, server_died: bool) -> list[Incident]:
    """The death, if there was one: a run ends with it. It was met by the last broken connection
    that is not collateral; those before it broke on a server that lived on."""
    if not server_died:
        return []
    broken = [record for record in records if record.failure in GONE and not record.collateral]
    assert broken, "a server died, and no request met it"
    met = max(broken, key=lambda record: record.t_done or 0)
    assert met.failure is not None
    return [
        Incident(
            i=met.i,
            failure=met.failure,
            at_s=None if met.t_done is None else met.t_done / 1e9,
            collateral=sum(record.collateral for record in records),
            error=met.error,
        )
    ]
