"""How many events a second one shard of the client carries on this machine, found against the truth
server: every event's time of arrival is compared with the time at which it was really written.

A rate is carried when the 99th percentile of that lag stays under `lag_limit_ms`. The result sizes
the shards of later runs.
"""

from __future__ import annotations

import math
import os
import platform
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from draftmark.bench.client.load import LoadResult, run_load
from draftmark.bench.gates.conduct import LAG_MS, LAG_SHARE_OF_TPOT
from draftmark.bench.profile import Mode
from draftmark.bench.request import PlannedRequest
from draftmark.bench.single_file import read_value
from draftmark.bench.truth.process import TruthProcess, truth_process
from draftmark.bench.truth.script import Exchange, Reply, Script
from draftmark.core.errors import ConfigError

# Without a calibration: what a process of Python carries on a slow machine.
UNCALIBRATED_RATE = 5000.0
# Shards are sized to work at this share of what one carries.
_HEADROOM = 0.7
_MAX_STREAMS = 4096
# A server that wrote less than this share of what was asked is itself the limit.
_SERVER_SHARE = 0.9


class Cell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One try: `streams` answers at a time. Rates are events a second, over all streams."""

    streams: int
    asked_rate: float
    written_rate: float
    lag_p50_ms: float
    lag_p99_ms: float
    lag_max_ms: float
    # As the run itself sees it, without a truth server: by ticks.
    tick_lag_p99_ms: float | None
    cpu_share: float | None
    is_carried: bool


class Calibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`rate` is the highest carried by one shard; None when not even one stream was. `bound` says
    what ended the search: a lag over the limit, a server that wrote no faster, or the most
    streams that are tried."""

    schema: Literal["bench.calibration/1"] = "bench.calibration/1"
    made: str
    machine: str
    python: str
    cpus: int
    # Of the machine before the first try: what else runs is measured, too.
    load_average: float
    stream_rate: float
    lag_limit_ms: float
    rate: float | None
    bound: Literal["client", "server", "streams"]
    cells: list[Cell]


def lag_limit_ms(tpot_ms: float) -> float:
    """A lag that a figure can bear, as the gate `client_lag` has it."""
    return max(LAG_MS, LAG_SHARE_OF_TPOT * tpot_ms)


def shards_needed(rate: float, calibration: Calibration | None) -> int:
    """Shards for `rate` events a second. Raises `ConfigError` when a shard carries none."""
    carried = UNCALIBRATED_RATE if calibration is None else calibration.rate
    if carried is None:
        raise ConfigError("the calibration found no rate that the client carries on this machine")
    return max(1, math.ceil(rate / (_HEADROOM * carried)))


def calibrate(*, streams: int = 128, rate: float = 50.0, seconds: float = 3.0) -> Calibration:
    """Begins with `streams` answers of `rate` events a second each, doubles or halves the streams
    until the limit is between two tries, and goes twice into the middle."""
    if streams < 1 or rate <= 0 or seconds <= 0:
        raise ConfigError("calibration needs streams, a rate and a time above 0")
    limit = lag_limit_ms(1000 / rate)
    load = os.getloadavg()[0]
    cells: list[Cell] = []
    with truth_process() as truth:
        bound = _search(truth, cells, streams, rate=rate, seconds=seconds, limit_ms=limit)
    carried = [cell.written_rate for cell in cells if cell.is_carried]
    return Calibration(
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        cpus=os.cpu_count() or 1,
        load_average=load,
        stream_rate=rate,
        lag_limit_ms=limit,
        rate=max(carried, default=None),
        bound=bound,
        cells=cells,
    )


def read_calibration(path: Path) -> Calibration:
    """Raises `ConfigError` for a file that is none."""
    return read_value(path, Calibration)


def _search(
    truth: TruthProcess,
    cells: list[Cell],
    streams: int,
    *,
    rate: float,
    seconds: float,
    limit_ms: float,
) -> Literal["client", "server", "streams"]:
    """Fills `cells`; returns what the highest rate is bound by."""
    carried = missed = middles = 0
    while streams and streams <= _MAX_STREAMS:
        cell = _try(truth, streams, rate=rate, seconds=seconds, limit_ms=limit_ms)
        cells.append(cell)
        if cell.is_carried:
            carried = max(carried, streams)
            if cell.written_rate < _SERVER_SHARE * cell.asked_rate:
                return "server"
        else:
            missed = min(missed or streams, streams)
        if not (carried and missed):
            streams = streams * 2 if carried else streams // 2
        elif middles == 2 or missed - carried < 2:
            break
        else:
            middles += 1
            streams = (carried + missed) // 2
    return "client" if missed else "streams"


def _try(
    truth: TruthProcess, streams: int, *, rate: float, seconds: float, limit_ms: float
) -> Cell:
    gap_ms = 1000 / rate
    tokens = max(2, round(seconds * rate))
    truth.play(Script(replies=[Reply(ttft_ms=100.0, gap_ms=gap_ms)]))
    result = run_load(
        [_plan(i, tokens) for i in range(streams)],
        url=truth.url,
        mode=Mode.CLOSED,
        concurrency=streams,
        timeout_s=10 * seconds + 60,
    )
    failed = [record for record in result.records if not record.ok]
    if failed:
        raise ConfigError(f"calibration failed against the truth server: {failed[0].error}")
    exchanges = truth.log()
    lags = event_lags_ms(result, exchanges)
    times = sorted(time for exchange in exchanges for time in exchange.token_times)
    p99 = float(np.quantile(lags, 0.99))
    return Cell(
        streams=streams,
        asked_rate=streams * rate,
        written_rate=(len(times) - 1) / ((times[-1] - times[0]) / 1e9),
        lag_p50_ms=float(np.quantile(lags, 0.5)),
        lag_p99_ms=p99,
        lag_max_ms=max(lags),
        tick_lag_p99_ms=result.client.lag_p99_ms,
        cpu_share=result.client.cpu_share,
        is_carried=p99 < limit_ms,
    )


def _plan(i: int, tokens: int) -> PlannedRequest:
    body = {"model": "truth", "prompt": [1], "max_tokens": tokens, "stream": True, "number": i}
    return PlannedRequest(
        index=i,
        at_s=None,
        path="/v1/completions",
        body=msgspec.json.encode(body),
        max_tokens=tokens,
        ignore_eos=True,
        num_prompt_tokens=1,
        prompt_sha="",
    )


def event_lags_ms(result: LoadResult, exchanges: list[Exchange]) -> list[float]:
    """Of every token event: from its write to the time in its record. `exchanges` are matched by
    the field `number` of their bodies."""
    written = {exchange.fields["number"]: exchange.token_times for exchange in exchanges}
    lags: list[float] = []
    for record in result.records:
        assert record.t_first is not None, "the truth server answers with tokens"
        start = (result.started_ns + record.t_first) / 1e6
        seen = [start + gap_us / 1e3 for gap_us in accumulate(record.icl_us, initial=0)]
        true = written[record.i]
        assert len(seen) == len(true), "each event is one token event"
        lags += [a - b / 1e6 for a, b in zip(seen, true, strict=True)]
    return lags
