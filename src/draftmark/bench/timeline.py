"""The course of a run: requests in flight and tokens out over time, and its steady part.

Times are nanoseconds of the run, as in the records.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from draftmark.bench.request import RequestRecord
from draftmark.bench.result import Steady

Floats = npt.NDArray[np.float64]

FULL_SHARE = 0.95
LEAST_SHARE_OF_WALL = 0.30
# One request ends and the next begins: such a dip does not end a steady span.
_HAND_OVER_NS = 50e6
_HAND_OVER_SHARE = 0.05


def steps_in_flight(records: Sequence[RequestRecord]) -> tuple[Floats, Floats]:
    """Times at which requests began or ended, ascending, and how many are in flight from each on.
    A request is in flight from its first byte sent to its end, failed ones too."""
    spans = _spans(records)
    times = np.array([time for span in spans for time in span], dtype=np.float64)
    changes = np.array([change for _ in spans for change in (1, -1)], dtype=np.float64)
    order = np.lexsort((changes, times))
    return times[order], np.cumsum(changes[order])


def in_flight_at(records: Sequence[RequestRecord], moments: Floats) -> Floats:
    times, levels = steps_in_flight(records)
    place = np.searchsorted(times, moments, side="right") - 1
    return np.where(place >= 0, np.append(levels, 0.0)[place], 0.0)


def mean_in_flight(records: Sequence[RequestRecord], start: float, end: float) -> float | None:
    """Over [start, end): the time all requests spent in it, by its length."""
    if end <= start:
        return None
    inside = [max(0.0, min(stop, end) - max(begin, start)) for begin, stop in _spans(records)]
    return sum(inside) / (end - start)


def token_times(record: RequestRecord) -> tuple[Floats, Floats]:
    """When tokens of a successful request came, and how many there were by then. Where the server
    does not tell what an event brought, all after the first one brought the same."""
    if record.t_first is None or record.n_out is None:
        return np.zeros(0), np.zeros(0)
    times = record.t_first + 1e3 * np.concatenate([[0.0], np.cumsum(record.icl_us)])
    if record.event_tokens is not None and len(record.event_tokens) == len(times):
        return times, np.cumsum(record.event_tokens, dtype=np.float64)
    first = min(record.n_first or 1, record.n_out) if len(times) > 1 else record.n_out
    return times, np.linspace(first, record.n_out, len(times))


def tokens_by(records: Sequence[RequestRecord], moments: Floats) -> Floats:
    """Tokens of all successful requests that had come at each moment. Between two events of a
    request they come evenly, so that a window cuts them where its edge is."""
    total = np.zeros(len(moments))
    for record in records:
        times, tokens = token_times(record) if record.ok else (np.zeros(0), np.zeros(0))
        if len(times):
            total += np.interp(moments, times, tokens, left=0.0)
    return total


def tpot_within(records: Sequence[RequestRecord], start: float, end: float) -> float | None:
    """Nanoseconds for each token after a request's first event, of what lies in [start, end)."""
    decoding = tokens = 0.0
    for record in records:
        times, counts = token_times(record) if record.ok else (np.zeros(0), np.zeros(0))
        if len(times) > 1:
            inside = np.clip([start, end], times[0], times[-1])
            decoding += float(inside[1] - inside[0])
            tokens += float(np.subtract(*np.interp(inside[::-1], times, counts)))
    return decoding / tokens if tokens else None


def steady_span(records: Sequence[RequestRecord], target: int) -> tuple[float, float] | None:
    """The longest span with at least 0.95 of `target` in flight."""
    times, levels = steps_in_flight(records)
    if not len(times):
        return None
    spans: list[tuple[float, float]] = []
    full = levels >= FULL_SHARE * target
    bridge = _longest_hand_over(records)
    for place in np.flatnonzero(full[:-1]):
        begin, end = float(times[place]), float(times[place + 1])
        if spans and begin - spans[-1][1] <= bridge:
            begin = spans.pop()[0]
        spans.append((begin, end))
    return max(spans, key=lambda span: span[1] - span[0]) if spans else None


def steady(records: Sequence[RequestRecord], target: int, wall_ns: float | None) -> Steady:
    span = steady_span(records, target)
    if span is None or wall_ns is None or wall_ns <= 0:
        return Steady(
            target=target,
            start_s=None,
            end_s=None,
            share_of_wall=None,
            mean_in_flight=None,
            flagged=f"never {FULL_SHARE:.0%} of {target} in flight",
        )
    share = (span[1] - span[0]) / wall_ns
    short = f"{share:.0%} of the run, less than {LEAST_SHARE_OF_WALL:.0%}"
    return Steady(
        target=target,
        start_s=span[0] / 1e9,
        end_s=span[1] / 1e9,
        share_of_wall=share,
        mean_in_flight=mean_in_flight(records, *span),
        flagged=short if share < LEAST_SHARE_OF_WALL else None,
    )


def _spans(records: Sequence[RequestRecord]) -> list[tuple[int, int]]:
    """From sent to ended of each request that was sent; one without an end, to its last token."""
    spans = []
    for record in records:
        end = record.t_done if record.t_done is not None else record.t_last
        if record.t_send is not None and end is not None and end > record.t_send:
            spans.append((record.t_send, end))
    return spans


def _longest_hand_over(records: Sequence[RequestRecord]) -> float:
    lengths = [end - begin for begin, end in _spans(records)]
    return min(_HAND_OVER_NS, _HAND_OVER_SHARE * statistics.median(lengths))
