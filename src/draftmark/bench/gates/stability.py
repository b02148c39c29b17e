"""Gates on whether the server held: no death, a clean log, and drafts that are accepted at all."""

from __future__ import annotations

from draftmark.bench.gates.evidence import Check, Evidence, Found
from draftmark.bench.result import GateKind

LEAST_ACCEPTED_OF_DRAFT = 0.1


def zero_crash(evidence: Evidence) -> Found:
    incidents = evidence.measured.counts.incidents
    observed = f"{len(incidents)} {'death' if len(incidents) == 1 else 'deaths'}"
    if incidents:
        lost = sum(incident.collateral for incident in incidents)
        observed += f", {lost} further requests lost to them"
    return Found(holds=not incidents, observed=observed, limit="none")


def log_clean(evidence: Evidence) -> Found | None:
    """A class without a limit is only told of."""
    if evidence.why_no_log is not None:
        return Found(holds=None, observed=evidence.why_no_log, limit="a log of the whole run")
    if evidence.log is None:
        return None
    over = [row for row in evidence.log if row.limit is not None and row.count > row.limit]
    observed = ", ".join(f"{row.count} {row.klass}" for row in over) or "nothing over its limit"
    limits = ", ".join(f"{row.klass} {row.limit}" for row in evidence.log if row.limit is not None)
    return Found(holds=not over, observed=observed, limit=limits or "none set")


def spec_sanity(evidence: Evidence) -> Found | None:
    spec = evidence.measured.spec
    if not spec.steps or spec.draft_length is None:
        return None
    least = 1 + LEAST_ACCEPTED_OF_DRAFT * spec.draft_length
    limit = f"at least {least:.2f} tokens a step"
    if spec.accept is None:
        return Found(holds=None, observed="not measured", limit=limit)
    observed = f"{spec.accept:.2f} tokens a step on {spec.prompts}"
    return Found(holds=spec.accept >= least, observed=observed, limit=limit)


CHECKS: tuple[Check[Evidence], ...] = (
    Check(
        id="zero_crash",
        kind=GateKind.STABILITY,
        demands="The server did not die.",
        look=zero_crash,
        where="run.json: counts.incidents",
        advice="Read the server's log of the moment that the incident names.",
    ),
    Check(
        id="log_clean",
        kind=GateKind.STABILITY,
        demands="With --log: no more lines of a class (nan, fallback, oom, xid, traceback) than "
        "its limit, which is 0.",
        look=log_clean,
        where="run.json: log; log.slice.gz",
        advice="Read the lines; one that is expected belongs in the allow list, by its class.",
    ),
    Check(
        id="spec_sanity",
        kind=GateKind.QUALITY,
        demands="Drafts are accepted at all: at least a tenth of their length a step.",
        look=spec_sanity,
        where="run.json: spec",
        advice="Drafts are hardly accepted: see that the draft head is that of the model.",
    ),
)
