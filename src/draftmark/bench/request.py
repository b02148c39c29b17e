"""One request of a run: as planned, and what came of it. The row of `requests.jsonl.gz`."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Failure(StrEnum):
    """Why a request counts as failed. Each failed request has exactly one."""

    REFUSED = "refused"
    RESET = "reset"
    CONNECT_TIMEOUT = "connect_timeout"
    READ_TIMEOUT = "read_timeout"
    HTTP_4XX = "http_4xx"
    HTTP_5XX = "http_5xx"
    INBAND_ERROR = "inband_error"
    BAD_SSE = "bad_sse"
    TRUNCATED_STREAM = "truncated_stream"
    EMPTY_OUTPUT = "empty_output"
    REASONING_ONLY = "reasoning_only"
    SHORT_OUTPUT = "short_output"
    CLIENT_ERROR = "client_error"


class CountSource(StrEnum):
    """Where the number of tokens of an answer comes from, the surest first."""

    USAGE = "usage"
    TOKEN_IDS = "token_ids"
    CHUNKS = "chunks"


class PlannedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What one request sends. `at_s` is when, in seconds after the start of the run; None in a
    closed loop: as soon as one of those in flight ended. `body` is the JSON as it goes out."""

    index: int
    at_s: float | None
    path: str
    body: bytes
    max_tokens: int
    ignore_eos: bool
    # Tokens of the prompt, where they are known before.
    num_prompt_tokens: int | None
    prompt_sha: str
    # Of the corpus, [start, end), for prompts from the ledger.
    window: tuple[int, int] | None = None


class Acceptance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of one request, as the server tells it: verify steps, and drafted tokens accepted in them."""

    steps: int
    accepted: int


class RequestRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What came of one request. Times are nanoseconds after the start of the run, on one clock for
    all shards; None is "did not happen" or "not told", never 0.

    A token event is one that brings tokens: new ids, a growing usage, or text, reasoning or tool
    calls. Roles, usage alone and comments bring none.
    """

    i: int
    window: tuple[int, int] | None
    prompt_sha: str
    t_sched: int | None
    # The first byte was written, on a connection that was open already.
    t_send: int | None
    t_first: int | None = None
    # The first visible text of any channel, and the first that is no reasoning.
    t_first_content: int | None = None
    t_first_output: int | None = None
    # The last token event, and the end of the answer.
    t_last: int | None = None
    t_done: int | None = None
    failure: Failure | None = None
    # Failed after the server was found dead: one incident, many refusals.
    collateral: bool = False
    http: int | None = None
    error: str | None = None
    finish: str | None = None
    n_in_plan: int | None = None
    n_in_usage: int | None = None
    n_cached: int | None = None
    n_out: int | None = None
    n_out_source: CountSource | None = None
    # Tokens of the first token event; None where the server does not tell.
    n_first: int | None = None
    events: int = 0
    n_reason: int | None = None
    accept: Acceptance | None = None
    # Between token events, in microseconds, and how many tokens each of them brought (the first one
    # included), where that is known.
    icl_us: list[int] = []
    event_tokens: list[int] | None = None
    text_sha: str | None = None
    text: str | None = None

    @property
    def ok(self) -> bool:
        return self.failure is None


def unsent(plan: PlannedRequest) -> RequestRecord:
    """The record of a request before anything came of it."""
    return RequestRecord(
        i=plan.index,
        window=plan.window,
        prompt_sha=plan.prompt_sha,
        t_sched=None if plan.at_s is None else round(plan.at_s * 1e9),
        t_send=None,
        n_in_plan=plan.num_prompt_tokens,
    )
