"""A run's folder, filled: rows, states of the server, its log, manifest, result and reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from draftmark.bench.gates import Evidence
from draftmark.bench.report.html import run_html
from draftmark.bench.report.markdown import run_markdown
from draftmark.bench.request import RequestRecord
from draftmark.bench.result import RunResult, Sample
from draftmark.bench.store import RunFolder, StoreError

REPORT, TABLE = "report.html", "report.md"


def keep_run(
    folder: RunFolder, result: RunResult, evidence: Evidence, log: bytes | None
) -> tuple[Path, RunResult]:
    """Raises `StoreError` for what the disk does not take."""
    assert evidence.manifests is not None, "a run of a session has a manifest"
    folder.write_records(evidence.records)
    folder.write_samples(evidence.samples)
    folder.write_before(evidence.before)
    if evidence.after is not None:
        folder.write_after(evidence.after)
    folder.write_manifest(*evidence.manifests)
    if log is not None:
        folder.write_log(log.splitlines(keepends=True))
    path, result = folder.finish(result)
    _write_reports(path, result, evidence.records, evidence.samples)
    return path, result


def _write_reports(
    path: Path, result: RunResult, records: Sequence[RequestRecord], samples: Sequence[Sample]
) -> None:
    """They show what the folder has; without them it is whole."""
    try:
        (path / REPORT).write_text(run_html(result, records, samples), encoding="utf-8")
        (path / TABLE).write_text(run_markdown(result), encoding="utf-8")
    except OSError as error:
        raise StoreError(
            f"the run is kept in {path}, but not its reports: {error.strerror}"
        ) from error
