"""What comes of a run: `run.json`, the rows of its samples, and what was seen of the server.

None is "not measured" or "not told", never 0. A quantile that falls on a failed request is the word
`inf`: JSON has no infinity, and null would read as "not measured".
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

import msgspec

from draftmark.bench.profile import Profile, PromptSource
from draftmark.bench.request import CountSource, Failure

SCHEMA: Literal["bench.run/1"] = "bench.run/1"

Quantile = float | Literal["inf"] | None


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a result: read strictly, as what it is and nothing else."""


class Role(StrEnum):
    WARM = "warm"
    MEASURE = "measure"
    KILLER = "killer"
    SMOKE = "smoke"


class RunState(StrEnum):
    """Partial: interrupted, or the server died. Its figures are None; its rows are kept."""

    COMPLETE = "complete"
    PARTIAL = "partial"


class Basis(StrEnum):
    """Over what a figure was taken. Figures of two bases are never divided by one another."""

    REQUESTS = "requests"
    WHOLE_RUN = "whole_run"
    STEADY = "steady"


class PromptKind(StrEnum):
    """What was asked. Drafts of random ids are accepted otherwise than drafts of text."""

    RANDOM_IDS = "random_ids"
    TEXT = "text"


def prompt_kind(source: PromptSource) -> PromptKind:
    return PromptKind.RANDOM_IDS if source is PromptSource.RANDOM_IDS else PromptKind.TEXT


class Times(Value, frozen=True, kw_only=True):
    """`started` and `ended` are UTC, ISO 8601. `wall_s` is from the first byte sent to the last
    token event, as the throughput has it."""

    started: str
    ended: str
    wall_s: float | None


class ClientReport(Value, frozen=True, kw_only=True):
    """How the client itself fared. `cpu_share` is of the busiest shard, 1 being one core."""

    shards: int
    lag_p99_ms: float | None
    cpu_share: float | None


class LedgerUse(Value, frozen=True, kw_only=True):
    """The tokens of a corpus that the run consumed, [start, end), and the ledger's line for it."""

    corpus: str
    window: tuple[int, int]
    klass: str = msgspec.field(name="class")
    line_sha: str


class Incident(Value, frozen=True, kw_only=True):
    """The server died once: the request that met it, and those refused because of it."""

    i: int
    failure: Failure
    at_s: float | None
    collateral: int
    error: str | None


class Counts(Value, frozen=True, kw_only=True):
    """`sent` is all that were to be sent, the collateral ones included."""

    sent: int
    ok: int
    failed: int
    by_class: dict[Failure, int]
    collateral: int
    incidents: list[Incident]


class Tokens(Value, frozen=True, kw_only=True):
    """Of the successful requests. None where any one of them is unknown. `source` is None when two
    sources are mixed: such a run is compared with nothing."""

    input: int | None
    output: int | None
    cached: int | None
    source: CountSource | None
    sources: dict[CountSource, int]


class Quantiles(Value, frozen=True, kw_only=True):
    """Failed requests counted as infinitely slow."""

    n: int
    p50: Quantile
    p90: Quantile
    p95: Quantile
    p99: Quantile


class Distribution(Value, frozen=True, kw_only=True):
    """Over the successful requests. A quantile q is None when n < 10 / (1 - q). `with_failures` is
    None where the values are no requests: gaps between events."""

    unit: str
    basis: Basis
    n: int
    mean: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    max: float | None
    with_failures: Quantiles | None


class Figure(Value, frozen=True, kw_only=True):
    """One number of a run, and of how many requests."""

    unit: str
    basis: Basis
    n: int
    value: float | None


class Steady(Value, frozen=True, kw_only=True):
    """The longest span with at least 0.95 of the target in flight, in seconds of the run.
    `flagged` says why its figures are not to be trusted."""

    target: int
    start_s: float | None
    end_s: float | None
    share_of_wall: float | None
    mean_in_flight: float | None
    flagged: str | None


class AcceptSource(StrEnum):
    COUNTERS = "counters"
    REQUESTS = "requests"


class Speculation(Value, frozen=True, kw_only=True):
    """`accept` is tokens emitted a verify step, weighted by tokens. The client's estimate from the
    number of events stands apart and decides nothing."""

    accept: float | None
    source: AcceptSource | None
    prompts: PromptKind
    steps: int | None
    # Drafted tokens a step, and the share of the steps that accepted the draft of each position.
    draft_length: float | None
    per_position: list[float] | None
    client_estimate: float | None


class Counters(Value, frozen=True, kw_only=True):
    """Of a server since it started. None where it does not tell."""

    requests: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    # Prompt tokens taken from a cache, and those looked up in it.
    cached_tokens: int | None = None
    queried_tokens: int | None = None
    preemptions: int | None = None
    retractions: int | None = None
    verify_steps: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    accepted_per_position: list[int] | None = None


class Memory(Value, frozen=True, kw_only=True):
    """What a server's processes hold: of the machine's memory, and of GPUs. None: not told."""

    resident_bytes: int | None
    gpu_bytes: int | None


class ServerState(Value, frozen=True, kw_only=True):
    """Seen of the server at one moment: `server_before.json` and `server_after.json`. `config` is
    the effective one by the server's own names, `raw` every counter as it was read."""

    adapter: str
    at: str
    url: str
    model: str | None
    version: str | None
    start_id: str | None
    config: dict[str, Any] | None
    counters: Counters
    kv_pool_tokens: int | None = None
    memory: Memory | None = None
    # The rates at which it accepts drafts by coins: then nothing it does is of a real model.
    synthetic_acceptance: str | None = None
    raw: dict[str, float] = {}


class Sample(Value, frozen=True, kw_only=True):
    """One second of the server, as it told it: a row of `samples.jsonl.gz`. `t` is nanoseconds
    after the start of the run, on the clock of the requests; `kv_use` is a share of 1."""

    t: int
    running: int | None
    waiting: int | None
    kv_use: float | None
    counters: Counters = Counters()


class ServerReport(Value, frozen=True, kw_only=True):
    """What the server did in the run: after minus before, None where either is unknown, or where
    another process counted than before. `missed` are seconds in which it could not be read,
    `memory` is that at the end."""

    adapter: str
    model: str | None
    version: str | None
    start_id: str | None
    kv_pool_tokens: int | None
    samples: int
    missed: int
    delta: Counters
    memory: Memory | None = None
    synthetic_acceptance: str | None = None


class DriftState(StrEnum):
    """Implicit: effective, and nobody declared it."""

    EQUAL = "equal"
    DIFFERS = "differs"
    MISSING = "missing"
    IMPLICIT = "implicit"


class Drift(Value, frozen=True, kw_only=True):
    key: str
    state: DriftState
    declared: Any = None
    effective: Any = None


class LogFinding(Value, frozen=True, kw_only=True):
    """Lines of one class in the server's log of the run. `limit` None: only told."""

    klass: str = msgspec.field(name="class")
    count: int
    limit: int | None
    examples: list[str]


class GateKind(StrEnum):
    METHOD = "method"
    STABILITY = "stability"
    QUALITY = "quality"
    PERFORMANCE = "performance"


class GateState(StrEnum):
    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"
    WAIVED = "waived"


class Gate(Value, frozen=True, kw_only=True):
    """`observed` and `limit` are sentences or figures for a reader, `evidence` a file of the run's
    folder and where to look in it, `advice` what to do when it does not hold."""

    id: str
    kind: GateKind
    observed: str
    limit: str
    state: GateState
    evidence: str
    advice: str


class FileEntry(Value, frozen=True, kw_only=True):
    sha256: str
    bytes: int


class RunResult(Value, frozen=True, kw_only=True):
    """`run.json`."""

    schema: Literal["bench.run/1"] = SCHEMA
    metrics_v: int
    run_id: str
    role: Role
    state: RunState
    # Why a partial run is partial, one sentence.
    why_partial: str | None
    verdict: str | None = None
    config_id: str
    start_id: str | None
    # The command that makes it again.
    command: list[str]
    profile: Profile
    time: Times
    client: ClientReport
    ledger: LedgerUse | None
    counts: Counts
    tokens: Tokens
    metrics: dict[str, Distribution]
    figures: dict[str, Figure]
    steady: Steady | None
    spec: Speculation
    server: ServerReport
    # None: nothing was declared, no log was read.
    drift: list[Drift] | None
    log: list[LogFinding] | None
    gates: list[Gate]
    files: dict[str, FileEntry]
