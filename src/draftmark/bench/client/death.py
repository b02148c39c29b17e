"""The death of a server is one incident: one request met it, all others are its collateral."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from draftmark.bench.request import Failure, PlannedRequest, RequestRecord, unsent

# What a dying server leaves behind in those under way, and in those that come after.
_DEADLY = (
    Failure.REFUSED,
    Failure.RESET,
    Failure.CONNECT_TIMEOUT,
    Failure.TRUNCATED_STREAM,
)


def account_for_death(
    plans: Sequence[PlannedRequest], records: Mapping[int, RequestRecord], *, met_by: Set[int]
) -> dict[int, RequestRecord]:
    """Records of all plans, those never sent included. `met_by` are requests whose connection broke
    without a sign of life afterwards; the first of them met the death. The collateral ones of
    `records` are marked in place."""
    ended = {i: record.t_done or 0 for i, record in records.items()}
    first = min(met_by, key=lambda i: ended[i])
    for i, record in records.items():
        if i != first and record.failure in _DEADLY and ended[i] >= ended[first]:
            record.collateral = True
    others = {plan.index: _not_sent(plan) for plan in plans if plan.index not in records}
    return {**records, **others}


def _not_sent(plan: PlannedRequest) -> RequestRecord:
    record = unsent(plan)
    record.failure = Failure.REFUSED
    record.collateral = True
    record.error = "not sent: the server had died"
    return record
