"""`draftmark bench trace`: replay a recorded load at its own times."""

from __future__ import annotations

from pathlib import Path

from draftmark.bench.arrivals import trace_times
from draftmark.bench.profile import Endpoint, Mode, Profile, check_profile
from draftmark.bench.prompts.random_ids import salt_of
from draftmark.bench.result import Role
from draftmark.bench.screen import Ui, open_screen
from draftmark.bench.session import Session, Work, open_session
from draftmark.bench.trace_prompts import Fitted, Over, fit_rows, trace_prompts
from draftmark.bench.traces import TraceFormat, read_trace
from draftmark.cli.arguments import CommandParser
from draftmark.cli.bench.profile_run import show
from draftmark.cli.bench.server_flags import (
    add_run_flags,
    add_server_flags,
    amount,
    count,
    new_name,
    settings_from,
)
from draftmark.cli.bench.status import of_gates


def run(argv: list[str]) -> int:
    parser = CommandParser(
        "bench trace",
        about="Replay a trace: arrivals, lengths and shared prefixes as recorded, tokens made from "
        "a seed.",
        takes="--url URL --trace FILE --format FORMAT [FLAGS]",
    )
    add_server_flags(parser)
    parser.own(
        "--trace", type=Path, required=True, metavar="FILE", help="File of the recorded load."
    )
    parser.own(
        "--format", required=True, choices=[one.value for one in TraceFormat], help="Its format."
    )
    parser.own("--limit", type=count, metavar="N", help="Rows from the beginning. [default: all]")
    parser.own(
        "--speed",
        type=amount,
        default=1.0,
        metavar="X",
        help="2 is twice as fast as recorded. [default: 1]",
    )
    parser.own(
        "--spread-ticks",
        action="store_true",
        help="Spread arrivals evenly that were recorded at one tick of a coarse clock.",
    )
    parser.own("--max-isl", type=count, metavar="N", help="Longest prompt, in tokens.")
    parser.own(
        "--over",
        choices=[one.value for one in Over],
        help="What becomes of longer ones: cut, left out, or all made shorter by one factor.",
    )
    parser.own(
        "--seed", type=int, default=1, metavar="N", help="Of tokens and spreading. [default: 1]"
    )
    parser.own(
        "--timeout",
        type=amount,
        default=600.0,
        metavar="S",
        help="Longest time of a request, in seconds. [default: 600]",
    )
    parser.own("--stop-at-eos", action="store_true", help="Let answers end before their length.")
    add_run_flags(parser)
    given = parser.parse(argv)
    rows = read_trace(given.trace, TraceFormat(given.format), limit=given.limit)
    fitted = fit_rows(
        rows, max_isl=given.max_isl, over=None if given.over is None else Over(given.over)
    )
    times = trace_times(
        [row.at_s for row in fitted.rows],
        speed=given.speed,
        spread_ticks=given.spread_ticks,
        seed=given.seed,
    )
    settings = settings_from(given, ["trace", *argv])
    profile = _profile(
        given.trace,
        fitted,
        seed=given.seed,
        timeout_s=given.timeout,
        to_length=not given.stop_at_eos,
    )
    name = given.run_id or new_name(profile.name)
    ui = Ui(given.ui)
    with open_screen(ui, steps=1) as screen:
        session = open_session(settings, screen)
        if fitted.told is not None:
            screen.warn(fitted.told)
        screen.stage(name)
        work = _work(session, profile, fitted, times, run_id=name, trace=given.trace)
        _, result = session.run(work, role=Role.MEASURE, run_id=name)
    if ui is not Ui.JSON:
        show([result])
    return of_gates([], [result])


def _profile(
    trace: Path, fitted: Fitted, *, seed: int, timeout_s: float, to_length: bool
) -> Profile:
    """As long as the longest rows; what each request asks for is its own."""
    rows = fitted.rows
    has_texts = any(row.isl is None for row in rows)
    has_chats = any(row.messages is not None for row in rows)
    texts = Endpoint.CHAT if has_chats else Endpoint.COMPLETIONS
    profile = Profile(
        name=trace.stem,
        mode=Mode.TRACE,
        n_requests=len(rows),
        isl=max((row.isl for row in rows if row.isl is not None), default=1),
        osl=max(row.osl for row in rows),
        ignore_eos=to_length,
        endpoint=texts if has_texts else Endpoint.COMPLETIONS_IDS,
        seed=seed,
        warm_runs=0,
        timeout_s=timeout_s,
    )
    check_profile(profile, where=f"trace {trace}")
    return profile


def _work(
    session: Session,
    profile: Profile,
    fitted: Fitted,
    times: list[float],
    *,
    run_id: str,
    trace: Path,
) -> Work:
    allowed, lead = None, []
    if profile.endpoint is Endpoint.COMPLETIONS_IDS:
        tokenizer = session.plain_ids()
        allowed, lead = tokenizer.plain_ids, tokenizer.lead
    prompts = trace_prompts(fitted.rows, allowed, salt=salt_of(run_id, profile.seed), lead=lead)
    return Work(profile=profile, files={"trace": trace}, prompts=prompts, times=times)
