"""The one place where a run becomes a result: figures, gates and what they rest on.

A run that broke off keeps its rows and its counts, and gets no figure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from draftmark.bench.counters import server_report
from draftmark.bench.gates import Evidence, run_gates
from draftmark.bench.masking import masked_command
from draftmark.bench.measure import withhold
from draftmark.bench.metrics import METRICS_VERSION
from draftmark.bench.result import RunResult, RunState, Times


class Occasion(msgspec.Struct, frozen=True, kw_only=True):
    """Which run this was. `started` and `ended` are UTC, ISO 8601."""

    run_id: str
    config_id: str
    command: Sequence[str]
    started: str
    ended: str
    verdict: str | None = None


def assemble(
    evidence: Evidence,
    occasion: Occasion,
    *,
    waive: Collection[str] = (),
    num_missed: int = 0,
) -> RunResult:
    """`num_missed` are seconds of which there is no sample. The files are the store's to add."""
    if evidence.why_partial is not None:
        evidence = msgspec.structs.replace(evidence, measured=withhold(evidence.measured))
    measured = evidence.measured
    return RunResult(
        metrics_v=METRICS_VERSION,
        run_id=occasion.run_id,
        role=evidence.role,
        state=RunState.COMPLETE if evidence.why_partial is None else RunState.PARTIAL,
        why_partial=evidence.why_partial,
        verdict=occasion.verdict,
        config_id=occasion.config_id,
        start_id=evidence.before.start_id,
        command=masked_command(occasion.command),
        profile=evidence.profile,
        time=Times(started=occasion.started, ended=occasion.ended, wall_s=measured.wall_s),
        client=evidence.client,
        ledger=evidence.ledger,
        counts=measured.counts,
        tokens=measured.tokens,
        metrics=measured.metrics,
        figures=measured.figures,
        steady=measured.steady,
        spec=measured.spec,
        server=server_report(
            evidence.before, evidence.after, samples=evidence.samples, num_missed=num_missed
        ),
        drift=None if evidence.drift is None else list(evidence.drift),
        log=None if evidence.log is None else list(evidence.log),
        gates=run_gates(evidence, waive=waive),
        files={},
    )
