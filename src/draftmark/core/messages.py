"""What the API process and the engine process say to one another (contract 8).

To the engine: `Add`, `Abort`, `Finish`, `ResetCache`, `ReportStacks`, `Drain`. From it:
`StepOutputs` (one message a committed step), `CacheWasReset`, `StacksReport`, `EngineState`. All
are tagged msgspec unions.
"""

from __future__ import annotations

import msgspec

from draftmark.core.request import FinishReason, Request
from draftmark.core.step import TokenLogprobs


class Add(msgspec.Struct, frozen=True, tag="add"):
    """Queue these requests (all choices of one client call), all or none of them."""

    requests: list[Request]


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """The client left. Unknown or already ended ids are ignored: an abort races with an end."""

    ids: list[int]


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    """End a request after its output token number `num_tokens` (1-based), found where text is."""

    id: int
    num_tokens: int
    reason: FinishReason


class ResetCache(msgspec.Struct, frozen=True, tag="reset_cache"):
    """Drop every cached page that no running sequence uses. Answered by `CacheWasReset`."""

    token: int


class ReportStacks(msgspec.Struct, frozen=True, tag="report_stacks"):
    """What is every process doing? Answered by a `StacksReport`, after a second at most."""

    token: int


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Take no more requests; exit with status 0 when the last one ended."""


ToEngine = Add | Abort | Finish | ResetCache | ReportStacks | Drain


class DraftUse(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What speculation gave one request: `windows` that had drafts, these drafts, and how many of
    them were accepted."""

    windows: int
    drafted: int
    accepted: int


class RequestOutput(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """New tokens of one request. `finish` is set exactly once, on its last output.

    `cached_tokens` (prompt tokens restored from the prefix cache) is set on the first output.
    `error` says why when `finish` is `error`. An end by `Finish` is confirmed here too, with no
    tokens. `drafts` is set on the last output of a request that had any; on other outputs of one
    with stop strings it says what there was so far, as that end is first seen where text is.
    """

    id: int
    token_ids: list[int]
    finish: FinishReason | None = None
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None
    cached_tokens: int = -1
    error: str = ""
    error_status: int = 500
    drafts: DraftUse | None = None


class DraftStats(msgspec.Struct, frozen=True, kw_only=True):
    """Running totals of speculation since start. `windows` are rows of steps that had drafts,
    `drafted` these drafts, `accepted` those that were right.

    Entry j of `judged_at` counts drafts at position j + 1 of their window whose predecessors were
    all accepted, `accepted_at` those of them that were. `turns` counts turns by the drafts that
    they made for each row. `gaps` are rows whose drafts began without context, after turns that
    made none. `verify_us` is the time of steps with windows, `draft_us` that of making drafts.

    `break_even` says for each number of drafts from 1 how many tokens a window must emit to be no
    slower than no drafts, for what runs now; empty where it was not measured. `low_length` is the
    mean length of the latest windows where acceptance is too low to believe, and `num_low` how
    often that was found.
    """

    windows: int
    drafted: int
    accepted: int
    judged_at: list[int]
    accepted_at: list[int]
    turns: list[int]
    gaps: int
    verify_us: int
    draft_us: int
    break_even: list[float]
    low_length: float | None
    num_low: int


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """Gauges and running totals since start; totals never fall.

    `pages_cached` counts what only the prefix cache holds: it can be had at once. What sequences
    hold is `pages_total - pages_free - pages_cached`. Of prompt tokens, `matched_tokens` had cached
    pages, and `cached_tokens` of them could be used: fewer where a hit needs a snapshot.
    Of `rows` computed so far `bad_rows` had a non-finite value, in no layer before
    `first_bad_layer` (-1: none had). `stage_busy_us` says how long each stage computed since start,
    `stage_busy_share` what share of the time between the two latest reports (above 1 where a step
    that began before them ended), `cohort_rows` how many decoding rows each cohort has now.
    `drafts` is None where none are made.
    """

    waiting: int = 0
    running: int = 0
    draining: int = 0
    pages_total: int = 0
    pages_free: int = 0
    pages_cached: int = 0
    slots_total: int = 0
    slots_free: int = 0
    snapshots_total: int = 0
    snapshots_used: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    matched_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    overrun_tokens: int = 0
    preemptions: int = 0
    aborts: int = 0
    rows: int = 0
    bad_rows: int = 0
    first_bad_layer: int = -1
    snapshot_saves: int = 0
    snapshot_restores: int = 0
    snapshot_evictions: int = 0
    engine_us: int = 0
    worker_us: int = 0
    stage_busy_us: list[int] = []
    stage_busy_share: list[float] = []
    cohort_rows: list[int] = []
    drafts: DraftStats | None = None


class StepOutputs(msgspec.Struct, frozen=True, tag="outputs"):
    """Everything one committed step gave; `stats` is attached at most every 100 ms."""

    outputs: list[RequestOutput]
    stats: EngineStats | None = None


class CacheWasReset(msgspec.Struct, frozen=True, tag="cache_was_reset"):
    token: int
    pages_dropped: int


class StacksReport(msgspec.Struct, frozen=True, tag="stacks"):
    """For people: what each stage is at, the ends of each lane, the stacks of all processes."""

    token: int
    text: str


class EngineState(msgspec.Struct, frozen=True, tag="state"):
    """`loading` (with a phase), `ready` (with the ready record as JSON), `draining`, `failed`."""

    state: str
    detail: str = ""
    ready: dict[str, object] | None = None


FromEngine = StepOutputs | CacheWasReset | StacksReport | EngineState
