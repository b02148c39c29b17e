"""How figures are written for people: enough digits and no more, and why one is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from draftmark.bench.request import Failure
from draftmark.bench.result import (
    ClientReport,
    Distribution,
    Figure,
    Gate,
    GateState,
    PromptKind,
    Quantile,
    RunResult,
    Speculation,
    Tokens,
)

NOT_MEASURED = "n/a"
QUANTILES = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}
_KINDS = {PromptKind.RANDOM_IDS: "random ids", PromptKind.TEXT: "text"}


def number(value: Quantile | int) -> str:
    """Three digits that count, and whole numbers whole: 0.123, 12.3, 1,234."""
    if value is None:
        return NOT_MEASURED
    if value == "inf":
        return "∞"
    size = abs(float(value))
    if isinstance(value, float) and size < 1:
        return f"{value:.3g}"
    digits = 0 if isinstance(value, int) or size >= 100 else 1 if size >= 10 else 2
    return f"{value:,.{digits}f}"


def figure(found: Figure | None) -> str:
    if found is None or found.value is None:
        return NOT_MEASURED
    return f"{found.value:.1%}" if found.unit == "share" else number(found.value)


def quantile(found: Distribution, name: str) -> str:
    """A quantile that is missing for want of values says how many it takes."""
    return _quantile(getattr(found, name), found.n, name)


def quantile_with_failures(found: Distribution, name: str) -> str:
    slow = found.with_failures
    return NOT_MEASURED if slow is None else _quantile(getattr(slow, name), slow.n, name)


def middle(found: Distribution | None) -> tuple[str, str]:
    """The median, or the mean where there are too few for one, and which of them it is."""
    if found is None or found.mean is None:
        return NOT_MEASURED, "mean"
    return (number(found.p50), "p50") if found.p50 is not None else (number(found.mean), "mean")


def accept(spec: Speculation) -> str:
    """Never without what was asked: drafts of random ids are accepted otherwise than of text."""
    if spec.accept is None:
        return "no drafts" if spec.steps == 0 else NOT_MEASURED
    return f"{spec.accept:.2f} ({prompts(spec)}, by {spec.source})"


def prompts(spec: Speculation) -> str:
    return _KINDS[spec.prompts]


def failures(by_class: Mapping[Failure, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in by_class.items()) or "none"


def counted_by(tokens: Tokens) -> str:
    """Where the numbers of tokens of answers come from."""
    if not tokens.sources:
        return NOT_MEASURED
    return str(tokens.source or "mixed sources")


def shards(client: ClientReport) -> str:
    return f"{client.shards} {'shard' if client.shards == 1 else 'shards'}"


def missed(gates: Sequence[Gate]) -> str:
    """What did not hold, and what could not be told."""
    parts = []
    for state, said in ((GateState.FAIL, "did not hold"), (GateState.UNKNOWN, "not known")):
        if ids := [gate.id for gate in gates if gate.state is state]:
            parts.append(f"{', '.join(ids)} {said}")
    waived = [gate.id for gate in gates if gate.state is GateState.WAIVED]
    if waived and not parts:
        return f"every gate holds but {', '.join(waived)}, waived as not known"
    return "; ".join(parts) or "every gate holds"


def headline(run: RunResult) -> str:
    """What was run, in one line, and first of all whether the server let coins accept drafts."""
    profile, rates = run.profile, run.server.synthetic_acceptance
    name = profile.name if rates is None else f"SYNTHETIC ACCEPTANCE {rates}, {profile.name}"
    load = f"{profile.concurrency} in flight" if profile.mode == "closed" else str(profile.mode)
    lengths = f"{profile.isl} tokens in, {profile.osl} out"
    if profile.mode == "trace":
        lengths = f"each of its own length, at most {profile.osl} tokens out"
    elif profile.source == "file":
        lengths = f"prompts as long as they are, {profile.osl} tokens out"
    return f"{name}: {run.counts.sent} requests, {load}, {lengths}, by {profile.endpoint}"


def _quantile(value: Quantile, n: int, name: str) -> str:
    fewest = 1000 // (100 - QUANTILES[name])
    return f"n<{fewest}" if value is None and 0 < n < fewest else number(value)
