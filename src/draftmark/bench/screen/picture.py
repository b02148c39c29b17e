"""How a run stands at this moment: what every kind of screen shows, each in its own way."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterable

import msgspec

from draftmark.bench.acceptance import step_acceptance
from draftmark.bench.client.load import LoadProgress
from draftmark.bench.metrics import tpot_ms, ttft_ms
from draftmark.bench.request import RequestRecord
from draftmark.bench.result import Sample

WINDOW_S = 10.0
_SPARKS = 32


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """Medians are of the requests that ended so far: no result, as the slow ones are not among
    them yet. None is "not known"."""

    step: int
    steps: int
    stage: str
    t_s: float = 0.0
    eta_s: float | None = None
    planned: int = 0
    sent: int = 0
    ok: int = 0
    failed: int = 0
    in_flight: int = 0
    tok_s: float | None = None
    # Tokens a second, of each second, the last one last.
    tok_s_history: list[float] = []
    ttft_ms_so_far: float | None = None
    tpot_ms_so_far: float | None = None
    tokens_a_step: float | None = None
    kv_use: float | None = None
    running: int | None = None
    waiting: int | None = None
    retracted: int | None = None
    ledger_left: int | None = None
    lag_ms: float | None = None
    warning: str | None = None


class Tracker:
    """Follows a command through its stages, such as the warm and the counted runs."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._step = 0
        self._stage = _Stage("", None)
        self._warning: str | None = None

    def stage(self, name: str, *, ledger_left: int | None = None) -> None:
        """The next step; `ledger_left` is the tokens of the corpus that nobody used."""
        self._step += 1
        self._stage = _Stage(name, ledger_left)

    def progress(self, progress: LoadProgress) -> None:
        self._stage.progress(progress)

    def sample(self, sample: Sample) -> None:
        self._stage.sample(sample)

    def warn(self, text: str) -> None:
        self._warning = text

    def picture(self) -> Picture:
        stage = self._stage
        stands = Picture(
            step=self._step,
            steps=self._steps,
            stage=stage.name,
            ledger_left=stage.ledger_left,
            warning=self._warning,
        )
        return stage.of_load(stage.of_server(stands))


class _Stage:
    """What was heard since a stage began."""

    def __init__(self, name: str, ledger_left: int | None) -> None:
        self.name = name
        self.ledger_left = ledger_left
        self._last: LoadProgress | None = None
        self._recent: deque[tuple[float, int]] = deque([(0.0, 0)])
        self._second = (0.0, 0)
        self._history: deque[float] = deque(maxlen=_SPARKS)
        self._ttft: list[float] = []
        self._tpot: list[float] = []
        self._retracted_before: int | None = None
        self._samples: deque[Sample] = deque(maxlen=2)

    def progress(self, progress: LoadProgress) -> None:
        self._last = progress
        self._recent.append((progress.t_s, progress.tokens))
        while len(self._recent) > 2 and self._recent[1][0] <= progress.t_s - WINDOW_S:
            self._recent.popleft()
        begun, tokens = self._second
        if progress.t_s - begun >= 1.0:
            self._history.append((progress.tokens - tokens) / (progress.t_s - begun))
            self._second = (progress.t_s, progress.tokens)
        self._learn(progress.new)

    def sample(self, sample: Sample) -> None:
        if not self._samples:
            self._retracted_before = sample.counters.retractions
        self._samples.append(sample)

    def of_load(self, picture: Picture) -> Picture:
        progress = self._last
        if progress is None:
            return picture
        return msgspec.structs.replace(
            picture,
            t_s=progress.t_s,
            eta_s=_eta_s(progress),
            planned=progress.planned,
            sent=progress.sent,
            ok=progress.ok,
            failed=progress.failed,
            in_flight=progress.in_flight,
            tok_s=self._tok_s(),
            tok_s_history=list(self._history),
            ttft_ms_so_far=_median(self._ttft),
            tpot_ms_so_far=_median(self._tpot),
            lag_ms=progress.lag_ms,
        )

    def of_server(self, picture: Picture) -> Picture:
        if not self._samples:
            return picture
        last, before = self._samples[-1], self._retracted_before
        steps = step_acceptance(list(self._samples))
        retracted = last.counters.retractions
        return msgspec.structs.replace(
            picture,
            kv_use=last.kv_use,
            running=last.running,
            waiting=last.waiting,
            tokens_a_step=steps[-1][1] if steps else None,
            retracted=None if before is None or retracted is None else retracted - before,
        )

    def _learn(self, records: Iterable[RequestRecord]) -> None:
        for record in records:
            for values, of in ((self._ttft, ttft_ms), (self._tpot, tpot_ms)):
                value = of(record) if record.ok else None
                if value is not None:
                    bisect.insort(values, value)

    def _tok_s(self) -> float | None:
        (begin, before), (end, now) = self._recent[0], self._recent[-1]
        return (now - before) / (end - begin) if end > begin else None


def _eta_s(progress: LoadProgress) -> float | None:
    """As if the rest went as what ended so far."""
    ended = progress.ok + progress.failed
    return progress.t_s * (progress.planned - ended) / ended if ended else None


def _median(ordered: list[float]) -> float | None:
    if not ordered:
        return None
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[~middle]) / 2
