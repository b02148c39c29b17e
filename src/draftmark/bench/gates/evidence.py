"""What the gates of one run look at, and a gate's row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from draftmark.bench.counters import delta
from draftmark.bench.manifest import Manifest
from draftmark.bench.measure import Measured
from draftmark.bench.profile import Profile
from draftmark.bench.request import RequestRecord
from draftmark.bench.result import (
    ClientReport,
    Counters,
    Drift,
    Gate,
    GateKind,
    GateState,
    LedgerUse,
    LogFinding,
    Role,
    Sample,
    ServerState,
)


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """`after` None: the server was gone. `drift`, `log`, `manifests` None: nobody asked for it.
    `why_partial` is one phrase, of a run that did not come to its end.

    `shared_tokens` are those at the start of every prompt that all have in common, of a template or
    a first token: a cache may hold them. `corpus_classes` are those of the ledger that will do:
    `paired` joins them by plan. `why_no_log`: one was asked for, and could not be read.
    """

    role: Role
    profile: Profile
    records: Sequence[RequestRecord]
    measured: Measured
    client: ClientReport
    before: ServerState
    after: ServerState | None
    why_partial: str | None = None
    samples: Sequence[Sample] = ()
    ledger: LedgerUse | None = None
    corpus_classes: frozenset[str] = frozenset({"fresh"})
    drift: Sequence[Drift] | None = None
    log: Sequence[LogFinding] | None = None
    why_no_log: str | None = None
    manifests: tuple[Manifest, Manifest] | None = None
    shared_tokens: int = 0

    @property
    def delta(self) -> Counters:
        return delta(self.before, self.after)

    @property
    def succeeded(self) -> list[RequestRecord]:
        return [record for record in self.records if record.ok]


STATES = {True: GateState.OK, False: GateState.FAIL, None: GateState.UNKNOWN}


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate saw. `holds` None: it could not be told."""

    holds: bool | None
    observed: str
    limit: str


Subject = TypeVar("Subject")


class Check(msgspec.Struct, Generic[Subject], frozen=True, kw_only=True):
    """Of one run, by its evidence, or of several. `demands` is the sentence for its documentation.
    `look` gives None where the gate has nothing to say of such a run. `where` names the file of the
    run's folder that it read, `advice` what to do when it does not hold."""

    id: str
    kind: GateKind
    demands: str
    look: Callable[[Subject], Found | None]
    where: str
    advice: str

    def gate(self, subject: Subject) -> Gate | None:
        found = self.look(subject)
        return None if found is None else self.row(found)

    def row(self, found: Found) -> Gate:
        return Gate(
            id=self.id,
            kind=self.kind,
            observed=found.observed,
            limit=found.limit,
            state=STATES[found.holds],
            evidence=self.where,
            advice=self.advice,
        )
