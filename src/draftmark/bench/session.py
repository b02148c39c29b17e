"""One server, and runs against it: from a profile to a folder with figures, gates and a report.

with open_screen(...) as screen:
    session = open_session(settings, screen)
    folder, result = session.run(work, role=Role.MEASURE, run_id="...")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from draftmark.bench.adapters import Adapter, make_adapter
from draftmark.bench.arrivals import arrival_times
from draftmark.bench.ask import Asker
from draftmark.bench.assemble import Occasion, assemble
from draftmark.bench.calibrate import Calibration, read_calibration, shards_needed
from draftmark.bench.client.load import LoadResult, run_load
from draftmark.bench.counters import delta
from draftmark.bench.declared.drift import drift
from draftmark.bench.declared.files import Declared, read_declared
from draftmark.bench.gates import Evidence
from draftmark.bench.incidents import incidents_of
from draftmark.bench.ledger.entries import Use
from draftmark.bench.ledger.ledger import Ledger, Reservation
from draftmark.bench.log_scan import LogSource, Mark, open_log, scan_log
from draftmark.bench.manifest import take_manifest
from draftmark.bench.measure import measure
from draftmark.bench.planner import Target, plan_requests
from draftmark.bench.profile import Endpoint, Mode, Profile, ProfileFile, PromptSource
from draftmark.bench.prompts.gather import Gathered, Sources, gather_prompts
from draftmark.bench.prompts.prompt import Prompt
from draftmark.bench.report.html import run_html
from draftmark.bench.report.markdown import run_markdown
from draftmark.bench.request import PlannedRequest
from draftmark.bench.result import Drift, DriftState, Role, RunResult, ServerState
from draftmark.bench.sampler import Sampler
from draftmark.bench.screen import Screen
from draftmark.bench.store import RunFolder
from draftmark.bench.template import template_tokens
from draftmark.bench.tokenizer import BenchTokenizer, find_tokenizer
from draftmark.core.errors import ConfigError, DraftmarkError, Unavailable

REPORT, TABLE = "report.html", "report.md"
# Events a second of one answer, for sizing the client before anything is measured.
_STREAM_RATE = 50.0


class NotAsDeclared(DraftmarkError):
    """The server runs otherwise than it was declared: nothing was sent to it."""

    code = "not_as_declared"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server is, what is known about it, and where runs go. `command` is for the record.
    `tokenizer` is a folder, a file or a hub id; `log` as `log_scan.open_log` takes it, `allow` are
    regular expressions of log lines that are expected."""

    url: str
    runs: Path
    command: Sequence[str]
    adapter: str = "auto"
    model: str | None = None
    api_key: str | None = None
    pid: int | None = None
    config_id: str = "server"
    tokenizer: str | None = None
    data: Path | None = None
    ledger: Path | None = None
    corpus: str | None = None
    use: Use = Use.FRESH
    declared: Path | None = None
    service: str | None = None
    log: str | None = None
    allow: Sequence[str] = ()
    waive: Sequence[str] = ()
    shards: int | None = None
    calibration: Path | None = None
    keep_text: bool = False


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What a run sends. `prompts` and `times` are a trace's own; None: the profile makes them.
    `files` are those the work was read from, by their role."""

    profile: Profile
    files: Mapping[str, Path] = {}
    prompts: Sequence[Prompt] | None = None
    times: Sequence[float] | None = None


def work_of(file: ProfileFile) -> Work:
    return Work(profile=file.profile, files={"profile": Path(file.path)})


def warm_work(work: Work) -> Work:
    """The same load from random ids: it heats the server, uses up no corpus and leaves nothing in
    its cache that the run would find there."""
    changed = {
        "source": PromptSource.RANDOM_IDS,
        "file": None,
        "endpoint": Endpoint.COMPLETIONS_IDS,
        "mode": Mode.CLOSED,
        "rate": None,
        "burstiness": 1.0,
    }
    profile = msgspec.structs.replace(work.profile, **changed)
    return Work(profile=profile, files=work.files)


class Session:
    """Of `open_session`. Runs follow one another; each looks at the server anew."""

    def __init__(
        self,
        settings: Settings,
        screen: Screen,
        *,
        adapter: Adapter,
        tokenizer: BenchTokenizer | None,
        declared: Declared | None,
        log: LogSource | None,
        calibration: Calibration | None,
    ) -> None:
        self.settings = settings
        self.adapter = adapter
        self._screen = screen
        self._tokenizer = tokenizer
        self._declared = declared
        self._log = log
        self._calibration = calibration
        self._template: int | None = None

    @property
    def can_warm(self) -> bool:
        return self._tokenizer is not None and self.adapter.accepts.prompt_ids

    def asker(self, *, timeout_s: float = 600.0) -> Asker:
        """For questions whose answers are read."""
        settings = self.settings
        return Asker(
            settings.url, model=self.adapter.model, api_key=settings.api_key, timeout_s=timeout_s
        )

    def plain_ids(self) -> BenchTokenizer:
        """The tokenizer. Raises `ConfigError` when there is none."""
        if self._tokenizer is None:
            raise ConfigError(
                "prompts of token ids need the model's tokenizer: --tokenizer FOLDER",
                param="tokenizer",
            )
        return self._tokenizer

    def run(self, work: Work, *, role: Role, run_id: str) -> tuple[Path, RunResult]:
        """One run, kept whatever came of it. Raises `DraftmarkError` for what prevents it; nothing
        of the ledger is used up then."""
        folder = RunFolder(self.settings.runs, run_id)
        self.adapter.reset_cache()
        before = self.adapter.before()
        rows = self.check_declared(before)
        files = {**work.files, **self._own_files()}
        start = take_manifest(files, self.settings.command)
        mark = None if self._log is None else self._log.mark()
        gathered, plans = self._plan(work, run_id=run_id, start_id=before.start_id)
        load, sampler = self._send(work.profile, plans, gathered.reservation)
        after = self._after(load)
        log = self._cut_log(mark)
        end = take_manifest(files, self.settings.command)
        measured = measure(
            load.records,
            work.profile,
            delta=delta(before, after),
            incidents=incidents_of(load.records, server_died=load.server_died),
        )
        evidence = Evidence(
            role=role,
            profile=work.profile,
            records=load.records,
            measured=measured,
            client=load.client,
            before=before,
            after=after,
            why_partial=load.why_partial,
            samples=sampler.samples,
            ledger=None if gathered.reservation is None else gathered.reservation.in_result(),
            drift=rows,
            log=None if log is None else scan_log(log, allowed=self.settings.allow),
            manifests=(start, end),
            shared_tokens=self._shared_tokens(work.profile),
        )
        occasion = Occasion(
            run_id=run_id,
            config_id=self.settings.config_id,
            command=self.settings.command,
            started=load.started,
            ended=load.ended,
        )
        result = assemble(
            evidence, occasion, waive=self.settings.waive, num_missed=len(sampler.missed)
        )
        folder.write_records(load.records)
        folder.write_samples(sampler.samples)
        folder.write_before(before)
        if after is not None:
            folder.write_after(after)
        folder.write_manifest(start, end)
        if log is not None:
            folder.write_log(log.splitlines(keepends=True))
        path, result = folder.finish(result)
        html = run_html(result, load.records, sampler.samples)
        (path / REPORT).write_text(html, encoding="utf-8")
        (path / TABLE).write_text(run_markdown(result), encoding="utf-8")
        self._screen.result(result, str(path))
        return path, result

    def check_declared(self, before: ServerState) -> list[Drift] | None:
        """Declared against effective; None when nothing was declared. Raises `NotAsDeclared`."""
        if self._declared is None:
            return None
        rows = drift(self._declared, before)
        wrong = [row for row in rows if row.state is DriftState.DIFFERS]
        if wrong:
            said = "; ".join(f"{w.key}: {w.declared} declared, {w.effective} there" for w in wrong)
            raise NotAsDeclared(f"{self._declared.path} and the server differ: {said}")
        return rows

    def _own_files(self) -> dict[str, Path]:
        return {} if self._declared is None else {"declared": Path(self._declared.path)}

    def _plan(
        self, work: Work, *, run_id: str, start_id: str | None
    ) -> tuple[Gathered, list[PlannedRequest]]:
        settings, profile = self.settings, work.profile
        times = work.times
        if work.prompts is None:
            times = arrival_times(profile)
            sources = Sources(
                tokenizer=self._tokenizer,
                data=settings.data,
                ledger=None if settings.ledger is None else Ledger(settings.ledger),
                corpus=settings.corpus,
            )
            gathered = gather_prompts(
                profile, sources, run_id=run_id, use=settings.use, start_id=start_id
            )
        else:
            gathered = Gathered(prompts=list(work.prompts))
        adapter = self.adapter
        try:
            plans = plan_requests(
                profile,
                gathered.prompts,
                Target(
                    model=adapter.model, accepts=adapter.accepts, max_context=adapter.max_context
                ),
                times=times,
                tokenizer=self._tokenizer,
                template_tokens=self._template_tokens(profile),
            )
        except BaseException:  # raised again: only the window is given back
            self._void(gathered.reservation, "the run could not be planned")
            raise
        return gathered, plans

    def _send(
        self, profile: Profile, plans: list[PlannedRequest], reservation: Reservation | None
    ) -> tuple[LoadResult, Sampler]:
        settings = self.settings
        try:
            with Sampler(self.adapter, on_sample=self._screen.sample) as sampler:
                load = run_load(
                    plans,
                    url=settings.url,
                    mode=profile.mode,
                    concurrency=profile.concurrency,
                    timeout_s=profile.timeout_s,
                    num_shards=settings.shards or self._shards(profile),
                    api_key=settings.api_key,
                    keep_text=settings.keep_text,
                    on_start=sampler.start,
                    on_progress=self._screen.progress,
                )
        except (ConfigError, Unavailable):
            self._void(reservation, "nothing could be sent")
            raise
        if reservation is not None:
            # Crash included: what a server has seen is no longer fresh.
            self._ledger().commit(reservation.line_sha)
        return load, sampler

    def _void(self, reservation: Reservation | None, why: str) -> None:
        if reservation is not None:
            self._ledger().void(reservation.line_sha, bytes_sent=0, reason=why)

    def _ledger(self) -> Ledger:
        assert self.settings.ledger is not None, "a reservation has a ledger"
        return Ledger(self.settings.ledger)

    def _shards(self, profile: Profile) -> int:
        rate = profile.concurrency * _STREAM_RATE
        if profile.rate is not None:
            rate = max(rate, profile.rate * profile.osl)
        return shards_needed(rate, self._calibration)

    def _after(self, load: LoadResult) -> ServerState | None:
        if load.server_died:
            return None
        try:
            return self.adapter.after()
        except DraftmarkError as error:
            self._screen.warn(f"the server after the run: {error.message}")
            return None

    def _cut_log(self, mark: Mark | None) -> bytes | None:
        if self._log is None or mark is None:
            return None
        return self._log.slice(mark, self._log.mark())

    def _template_tokens(self, profile: Profile) -> int | None:
        """Asked once, and only of chats: the length of their prompts is then known before."""
        if profile.endpoint is Endpoint.CHAT and self._tokenizer and self._template is None:
            self._template = template_tokens(self.asker(), self._tokenizer)
        return self._template if profile.endpoint is Endpoint.CHAT else None

    def _shared_tokens(self, profile: Profile) -> int:
        if profile.endpoint is Endpoint.CHAT:
            return self._template or 0
        return 0 if self._tokenizer is None else len(self._tokenizer.lead)


def open_session(settings: Settings, screen: Screen) -> Session:
    """Finds the server and what the settings name. Raises `Unavailable`, `ModelNotFound` for a
    model it does not serve, and `ConfigError`."""
    adapter = make_adapter(
        settings.adapter,
        settings.url,
        model=settings.model,
        api_key=settings.api_key,
        pid=settings.pid,
    )
    model = adapter.model
    return Session(
        settings,
        screen,
        adapter=adapter,
        tokenizer=find_tokenizer(
            settings.tokenizer,
            control=adapter.control,
            model=model,
            is_served=adapter.accepts.tokenize,
        ),
        declared=(
            None
            if settings.declared is None
            else read_declared(settings.declared, service=settings.service)
        ),
        log=None if settings.log is None else open_log(settings.log),
        calibration=(
            None if settings.calibration is None else read_calibration(settings.calibration)
        ),
    )
