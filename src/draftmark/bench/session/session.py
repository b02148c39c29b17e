"""A server that was found, and runs against it."""

from __future__ import annotations

from pathlib import Path

from draftmark.bench.adapters import Adapter
from draftmark.bench.ask import Asker
from draftmark.bench.assemble import Occasion, assemble
from draftmark.bench.calibrate import Calibration, shards_needed
from draftmark.bench.client.load import LoadResult, run_load
from draftmark.bench.counters import delta
from draftmark.bench.declared.drift import drift
from draftmark.bench.declared.files import Declared
from draftmark.bench.gates import Evidence
from draftmark.bench.incidents import incidents_of
from draftmark.bench.ledger.entries import Use
from draftmark.bench.log_scan import LogSource, Mark, scan_log
from draftmark.bench.manifest import take_manifest
from draftmark.bench.measure import measure
from draftmark.bench.profile import Endpoint, Profile
from draftmark.bench.result import Drift, DriftState, Role, RunResult, ServerState
from draftmark.bench.sampler import Sampler
from draftmark.bench.screen import Screen
from draftmark.bench.session.keeping import keep_run
from draftmark.bench.session.planning import Planned, check_work, plan_run
from draftmark.bench.session.settings import Settings, Work
from draftmark.bench.store import RunFolder
from draftmark.bench.template import template_tokens
from draftmark.bench.tokenizer import BenchTokenizer
from draftmark.core.errors import ConfigError, DraftmarkError, Unavailable

# Events a second of one answer, for sizing the client before anything is measured.
_STREAM_RATE = 50.0
# Uses of a corpus that leave nothing in a cache: who asks for another one gets figures that do not
# count.
_CLASSES: dict[Use, frozenset[str]] = {Use.PAIRED: frozenset({Use.FRESH, Use.PAIRED})}


class NotAsDeclared(DraftmarkError):
    """The server runs otherwise than it was declared: nothing was sent to it."""

    code = "not_as_declared"


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

    def asker(self) -> Asker:
        """For questions whose answers are read."""
        settings = self.settings
        return Asker(settings.url, model=self.adapter.model, api_key=settings.api_key)

    def plain_ids(self) -> BenchTokenizer:
        """The tokenizer. Raises `ConfigError` when there is none."""
        if self._tokenizer is None:
            raise ConfigError(
                "prompts of token ids need the model's tokenizer: --tokenizer FOLDER",
                param="tokenizer",
            )
        return self._tokenizer

    def check(self, profile: Profile, *, runs: int) -> None:
        """Raises `ConfigError` unless there are prompts for `runs` runs of the profile."""
        check_work(self.settings, profile, tokenizer=self._tokenizer, runs=runs)

    def run(self, work: Work, *, role: Role, run_id: str) -> tuple[Path, RunResult]:
        """One run, kept whatever came of it. Raises `DraftmarkError` for what prevents it; nothing
        of the ledger is used up then, and no folder is left."""
        settings = self.settings
        self._learn_template(work.profile)
        self.adapter.reset_cache()
        before = self.adapter.before()
        rows = self._drift(before)
        own = {} if self._declared is None else {"declared": Path(self._declared.path)}
        files = {**work.files, **own}
        with RunFolder(settings.runs, run_id) as folder:
            manifest = take_manifest(files, settings.command)
            mark = None if self._log is None else self._log.mark()
            planned = self._plan(work, run_id=run_id, start_id=before.start_id)
            load, sampler = self._send(work.profile, planned)
            used = None if planned.window is None else planned.window.use_up()
            after = self._after(load)
            log, why_no_log = self._cut_log(mark)
            incidents = incidents_of(load.records, server_died=load.server_died)
            evidence = Evidence(
                role=role,
                profile=work.profile,
                records=load.records,
                measured=measure(
                    load.records, work.profile, delta=delta(before, after), incidents=incidents
                ),
                client=load.client,
                before=before,
                after=after,
                why_partial=load.why_partial,
                samples=sampler.samples,
                ledger=used,
                corpus_classes=_CLASSES.get(settings.use, frozenset({Use.FRESH})),
                drift=rows,
                log=None if log is None else scan_log(log, allowed=settings.allow),
                why_no_log=why_no_log,
                manifests=(manifest, take_manifest(files, settings.command)),
                shared_tokens=self._shared_tokens(work.profile),
            )
            occasion = Occasion(
                run_id=run_id,
                config_id=settings.config_id,
                command=settings.command,
                started=load.started,
                ended=load.ended,
            )
            result = assemble(
                evidence, occasion, waive=settings.waive, num_missed=len(sampler.missed)
            )
            path, result = keep_run(folder, result, evidence, log)
        self._screen.result(result, str(path))
        return path, result

    def _drift(self, before: ServerState) -> list[Drift] | None:
        """Declared against effective; None when nothing was declared. Raises `NotAsDeclared`."""
        if self._declared is None:
            return None
        rows = drift(self._declared, before)
        wrong = [row for row in rows if row.state is DriftState.DIFFERS]
        if wrong:
            said = "; ".join(f"{w.key}: {w.declared} declared, {w.effective} there" for w in wrong)
            raise NotAsDeclared(f"{self._declared.path} and the server differ: {said}")
        return rows

    def _plan(self, work: Work, *, run_id: str, start_id: str | None) -> Planned:
        return plan_run(
            self.settings,
            work,
            adapter=self.adapter,
            tokenizer=self._tokenizer,
            template_tokens=self._template if work.profile.endpoint is Endpoint.CHAT else None,
            run_id=run_id,
            start_id=start_id,
        )

    def _send(self, profile: Profile, planned: Planned) -> tuple[LoadResult, Sampler]:
        settings = self.settings
        try:
            with Sampler(self.adapter, on_sample=self._screen.sample) as sampler:
                load = run_load(
                    planned.requests,
                    url=settings.url,
                    mode=profile.mode,
                    concurrency=profile.concurrency,
                    timeout_s=profile.timeout_s,
                    num_shards=self._shards(profile),
                    api_key=settings.api_key,
                    keep_text=settings.keep_text,
                    on_start=sampler.start,
                    on_progress=self._screen.progress,
                )
        except (ConfigError, Unavailable):
            if planned.window is not None:
                planned.window.give_back("nothing could be sent")
            raise
        return load, sampler

    def _shards(self, profile: Profile) -> int:
        if self.settings.shards is not None:
            return self.settings.shards
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

    def _cut_log(self, mark: Mark | None) -> tuple[bytes | None, str | None]:
        """The server's log of the run, or why there is none: the run is kept without it."""
        if self._log is None or mark is None:
            return None, None
        try:
            return self._log.slice(mark, self._log.mark()), None
        except (ConfigError, Unavailable) as error:
            self._screen.warn(error.message)
            return None, error.message

    def _learn_template(self, profile: Profile) -> None:
        """Asked once, and only of chats: the length of their prompts is then known before. Outside
        of what the run counts."""
        if profile.endpoint is Endpoint.CHAT and self._tokenizer and self._template is None:
            self._template = template_tokens(self.asker(), self._tokenizer)
            self.adapter.wait_for_rest()

    def _shared_tokens(self, profile: Profile) -> int:
        if profile.endpoint is Endpoint.CHAT:
            return self._template or 0
        return 0 if self._tokenizer is None else len(self._tokenizer.lead)
