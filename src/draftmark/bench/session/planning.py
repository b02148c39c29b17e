"""From the work of a run to its requests, with a window of the ledger where its prompts come from
one. A window is given back when nothing of it was sent, and else used up, whatever came of the run:
what a server has seen is no longer fresh."""

from __future__ import annotations

import msgspec

from draftmark.bench.adapters import Adapter
from draftmark.bench.arrivals import arrival_times
from draftmark.bench.ledger.ledger import Ledger, Reservation
from draftmark.bench.planner import Target, plan_requests
from draftmark.bench.profile import Profile
from draftmark.bench.prompts.gather import Gathered, Sources, check_sources, gather_prompts
from draftmark.bench.request import PlannedRequest
from draftmark.bench.result import LedgerUse
from draftmark.bench.session.settings import Settings, Work
from draftmark.bench.tokenizer import BenchTokenizer


class Window(msgspec.Struct, frozen=True):
    """Reserved for this run."""

    ledger: Ledger
    reservation: Reservation

    def give_back(self, why: str) -> None:
        self.ledger.void(self.reservation.line_sha, bytes_sent=0, reason=why)

    def use_up(self) -> LedgerUse:
        self.ledger.commit(self.reservation.line_sha)
        return self.reservation.in_result()


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """`window` is None for prompts from elsewhere."""

    requests: list[PlannedRequest]
    window: Window | None


def plan_run(
    settings: Settings,
    work: Work,
    *,
    adapter: Adapter,
    tokenizer: BenchTokenizer | None,
    template_tokens: int | None,
    run_id: str,
    start_id: str | None,
) -> Planned:
    """Raises `ConfigError` for what cannot be sent; a window is then given back."""
    window = None
    prompts, times = work.prompts, work.times
    if prompts is None:
        times = arrival_times(work.profile)
        gathered = _gather(settings, work, tokenizer, run_id=run_id, start_id=start_id)
        prompts = gathered.prompts
        if gathered.reservation is not None:
            window = Window(_ledger(settings), gathered.reservation)
    target = Target(model=adapter.model, accepts=adapter.accepts, max_context=adapter.max_context)
    try:
        requests = plan_requests(
            work.profile,
            prompts,
            target,
            times=times,
            tokenizer=tokenizer,
            template_tokens=template_tokens,
        )
    except BaseException:  # raised again: only the window is given back
        if window is not None:
            window.give_back("the run could not be planned")
        raise
    return Planned(requests=requests, window=window)


def check_work(
    settings: Settings, profile: Profile, *, tokenizer: BenchTokenizer | None, runs: int
) -> None:
    """Raises `ConfigError` unless there are prompts for `runs` runs."""
    check_sources(profile, _sources(settings, tokenizer), runs=runs, use=settings.use)


def _gather(
    settings: Settings,
    work: Work,
    tokenizer: BenchTokenizer | None,
    *,
    run_id: str,
    start_id: str | None,
) -> Gathered:
    return gather_prompts(
        work.profile,
        _sources(settings, tokenizer),
        run_id=run_id,
        use=settings.use,
        start_id=start_id,
        isolated=settings.isolated,
    )


def _sources(settings: Settings, tokenizer: BenchTokenizer | None) -> Sources:
    return Sources(
        tokenizer=tokenizer,
        data=settings.data,
        ledger=None if settings.ledger is None else _ledger(settings),
        corpus=settings.corpus,
    )


def _ledger(settings: Settings) -> Ledger:
    assert settings.ledger is not None, "a reservation has a ledger"
    return Ledger(settings.ledger)
