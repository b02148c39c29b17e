"""A picture of a run in words: one line for a log, a few for a terminal."""

from __future__ import annotations

from draftmark.bench.report.cells import number
from draftmark.bench.screen.picture import Picture

_SPARK = "▁▂▃▄▅▆▇█"


def one_line(picture: Picture) -> str:
    """What is not known is left out."""
    parts = [
        f"[{picture.step}/{picture.steps}] {picture.stage} {_clock(picture.t_s)}",
        _requests(picture),
        _said("tok/s", picture.tok_s),
        _said("ttft", picture.ttft_ms_so_far, " ms"),
        _said("tpot", picture.tpot_ms_so_far, " ms"),
        _said("a step", picture.tokens_a_step),
        "" if picture.kv_use is None else f"kv {picture.kv_use:.1%}",
        f"retracted {picture.retracted}" if picture.retracted else "",
        _said("lag", picture.lag_ms, " ms"),
        "" if picture.eta_s is None else f"eta {_clock(picture.eta_s)}",
    ]
    return ", ".join(part for part in parts if part)


def block(picture: Picture) -> list[str]:
    """Always as many lines, so that the next one lies over it."""
    eta = "" if picture.eta_s is None else f", about {_clock(picture.eta_s)} left"
    kv = "n/a" if picture.kv_use is None else f"{picture.kv_use:.1%}"
    return [
        f"step {picture.step} of {picture.steps}: {picture.stage}  {_clock(picture.t_s)}{eta}",
        f"  requests   {_bar(picture)} {_requests(picture)}",
        f"  output     {number(picture.tok_s)} tok/s  {sparkline(picture.tok_s_history)}",
        f"  so far     ttft p50 {number(picture.ttft_ms_so_far)} ms, "
        f"tpot p50 {number(picture.tpot_ms_so_far)} ms, "
        f"{number(picture.tokens_a_step)} tokens a step",
        f"  server     running {number(picture.running)}, waiting {number(picture.waiting)}, "
        f"kv {kv}, retracted {number(picture.retracted)}",
        f"  client     lag {number(picture.lag_ms)} ms; "
        f"ledger {number(picture.ledger_left)} tokens left",
        f"  warning    {picture.warning or 'none'}",
    ]


def sparkline(values: list[float]) -> str:
    """Heights from nothing to the highest."""
    most = max(values, default=0.0)
    if most <= 0:
        return _SPARK[0] * len(values)
    return "".join(_SPARK[round(max(value, 0.0) / most * (len(_SPARK) - 1))] for value in values)


def _requests(picture: Picture) -> str:
    failed = f", {picture.failed} failed" if picture.failed else ""
    return (
        f"{picture.ok + picture.failed}/{picture.planned} ended{failed}, "
        f"{picture.in_flight} in flight"
    )


def _bar(picture: Picture, width: int = 20) -> str:
    share = (picture.ok + picture.failed) / picture.planned if picture.planned else 0.0
    full = int(share * width)
    return "█" * full + "░" * (width - full)


def _said(name: str, value: float | None, unit: str = "") -> str:
    return "" if value is None else f"{name} {number(value)}{unit}"


def _clock(seconds: float) -> str:
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
