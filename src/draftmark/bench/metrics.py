"""What every figure of a result means, in one sentence each, and how it is taken from the records.

A change of what a figure means is a new METRICS_VERSION: results of two versions are not compared.
Unknown is None. A request counts in a figure where the figure exists for it: an answer of a single
token has no time per further token, and is left out there, not counted as 0.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from draftmark.bench.request import RequestRecord
from draftmark.bench.result import Basis

METRICS_VERSION = 1


class Definition(msgspec.Struct, frozen=True):
    name: str
    unit: str
    basis: Basis
    means: str


class RequestMetric(msgspec.Struct, frozen=True):
    definition: Definition
    of: Callable[[RequestRecord], float | None]


class GapMetric(msgspec.Struct, frozen=True):
    """Of gaps between events, pooled over requests. None: not known for one of the requests."""

    definition: Definition
    of: Callable[[RequestRecord], list[float] | None]


def _ms(begin: int | None, end: int | None) -> float | None:
    return None if begin is None or end is None else (end - begin) / 1e6


def ttft_ms(record: RequestRecord) -> float | None:
    return _ms(record.t_send, record.t_first)


def tpot_ms(record: RequestRecord) -> float | None:
    """None for an answer that came whole with its first event."""
    decoding = _ms(record.t_first, record.t_last)
    if decoding is None or record.n_out is None:
        return None
    further = record.n_out - (record.n_first if record.n_first is not None else 1)
    return decoding / further if further > 0 else None


def is_at_once(record: RequestRecord) -> bool:
    """All of its tokens came with the first event: a time per further token does not exist."""
    if record.t_first is None or record.n_out is None:
        return False
    return record.n_out <= (record.n_first if record.n_first is not None else 1)


def e2e_ms(record: RequestRecord) -> float | None:
    return _ms(record.t_send, record.t_last)


def icl_ms(record: RequestRecord) -> list[float] | None:
    return [gap / 1e3 for gap in record.icl_us]


def itl_ms(record: RequestRecord) -> list[float] | None:
    """A gap counts once for every token that ended it; an event without a token ends no gap."""
    tokens = record.event_tokens
    if tokens is None or len(tokens) != len(record.icl_us) + 1:
        return None
    found: list[float] = []
    waited = 0.0
    for gap, count in zip(record.icl_us, tokens[1:], strict=True):
        waited += gap / 1e3
        if count:
            found += [waited / count] * count
            waited = 0.0
    return found


def _of_requests(name: str, means: str) -> Definition:
    return Definition(name, "ms", Basis.REQUESTS, means)


REQUEST_METRICS = (
    RequestMetric(
        _of_requests("ttft_ms", "From the first byte sent to the first event that brings tokens."),
        ttft_ms,
    ),
    RequestMetric(
        _of_requests("ttfv_ms", "From the first byte sent to the first visible text of any kind."),
        lambda record: _ms(record.t_send, record.t_first_content),
    ),
    RequestMetric(
        _of_requests("ttfo_ms", "From the first byte sent to the first text that is no reasoning."),
        lambda record: _ms(record.t_send, record.t_first_output),
    ),
    RequestMetric(
        _of_requests("tpot_ms", "From the first event to the last, by the tokens after the first."),
        tpot_ms,
    ),
    RequestMetric(
        _of_requests("e2e_ms", "From the first byte sent to the last event that brings tokens."),
        e2e_ms,
    ),
    RequestMetric(
        _of_requests("queue_ms", "From when a request was due to its first byte sent."),
        lambda record: _ms(record.t_sched, record.t_send),
    ),
    RequestMetric(
        _of_requests("ttft_sched_ms", "From when a request was due to its first event."),
        lambda record: _ms(record.t_sched, record.t_first),
    ),
    RequestMetric(
        _of_requests("e2e_sched_ms", "From when a request was due to its last event."),
        lambda record: _ms(record.t_sched, record.t_last),
    ),
)
GAP_METRICS = (
    GapMetric(
        _of_requests("icl_ms", "Between two events of a request, whatever number of tokens each."),
        icl_ms,
    ),
    GapMetric(
        _of_requests("itl_ms", "Between two events, by the tokens of the second, once for each."),
        itl_ms,
    ),
)
FIGURES = {
    figure.name: figure
    for figure in (
        Definition(
            "out_tok_s",
            "tok/s",
            Basis.WHOLE_RUN,
            "Tokens of successful answers, by the time from the first byte sent to the last token.",
        ),
        Definition(
            "in_tok_s", "tok/s", Basis.WHOLE_RUN, "Tokens of their prompts, by the same time."
        ),
        Definition("req_s", "1/s", Basis.WHOLE_RUN, "Successful requests, by the same time."),
        Definition(
            "ok_request_tok_s",
            "tok/s",
            Basis.REQUESTS,
            "Tokens of successful answers, by the sum of their times from end to end.",
        ),
        Definition("ok_share", "share", Basis.WHOLE_RUN, "Successful requests of all to be sent."),
        Definition(
            "goodput_req_s",
            "1/s",
            Basis.WHOLE_RUN,
            "Successful requests within all objectives, by the time of the run.",
        ),
        Definition(
            "attainment",
            "share",
            Basis.WHOLE_RUN,
            "Successful requests within all objectives, of all to be sent.",
        ),
        Definition(
            "steady_out_tok_s",
            "tok/s",
            Basis.STEADY,
            "Tokens that came in the steady span, by its length, cut evenly at both edges.",
        ),
        Definition(
            "steady_tpot_ms",
            "ms",
            Basis.STEADY,
            "Time between first and last events in the steady span, by its tokens after the first.",
        ),
        Definition(
            "step_ms",
            "ms",
            Basis.STEADY,
            "Requests in flight by tokens per second, both steady, times the tokens of a step.",
        ),
        Definition(
            "tpot_step_ms",
            "ms",
            Basis.REQUESTS,
            "Time of one step with all stalls in it: mean TPOT, times the tokens of a step.",
        ),
    )
}
