"""The folder of a run: written beside its place under `.part`, and renamed when all of it is there.

What a full disk or a kill leaves behind keeps that name: rows to look at, and never read as a
result. Each file is read back, strictly by its type, before it counts as written.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, TypeVar

import msgspec

from draftmark.bench.manifest import Manifest, Manifests, changes
from draftmark.bench.request import RequestRecord
from draftmark.bench.result import FileEntry, RunResult, RunState, Sample, ServerState
from draftmark.core.errors import ConfigError, DraftmarkError

PART = ".part"
RUN = "run.json"
REQUESTS = "requests.jsonl.gz"
SAMPLES = "samples.jsonl.gz"
BEFORE, AFTER = "server_before.json", "server_after.json"
LOG = "log.slice.gz"
MANIFEST = "manifest.json"

T = TypeVar("T")


class StoreError(DraftmarkError):
    """A result could not be written, or does not read back."""

    code = "store_error"


class RunFolder:
    """A run being written, for `with`: made before its first request, so that a folder that cannot
    be written costs no run. Raises `ConfigError` when there is such a run already, `StoreError`
    when the disk is full or takes no more."""

    def __init__(self, runs: Path, run_id: str) -> None:
        is_name = run_id != "" and Path(run_id).name == run_id
        if not is_name or run_id.startswith(".") or run_id.endswith(PART):
            raise ConfigError(f"{run_id!r} cannot be the name of a run's folder")
        self.path = runs / run_id
        self.part = runs / (run_id + PART)
        for folder in (self.path, self.part):
            if folder.exists():
                raise ConfigError(f"there is a run {folder} already")
        try:
            self.part.mkdir(parents=True)
        except OSError as error:
            raise StoreError(f"{self.part} cannot be made: {error.strerror}") from error
        self._files: dict[str, FileEntry] = {}

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """A run that never wrote a row leaves no folder."""
        if self.part.is_dir() and not any(self.part.iterdir()):
            self.part.rmdir()

    def write_records(self, records: Sequence[RequestRecord]) -> None:
        self._write_rows(REQUESTS, records, RequestRecord)

    def write_samples(self, samples: Sequence[Sample]) -> None:
        self._write_rows(SAMPLES, samples, Sample)

    def write_before(self, state: ServerState) -> None:
        self._write_one(BEFORE, state, ServerState)

    def write_after(self, state: ServerState) -> None:
        self._write_one(AFTER, state, ServerState)

    def write_manifest(self, start: Manifest, end: Manifest) -> None:
        both = Manifests(start=start, end=end, changed=changes(start, end))
        self._write_one(MANIFEST, both, Manifests)

    def write_log(self, lines: Iterable[bytes]) -> None:
        """The server's log of the run, each line with its end."""
        with self._writing(LOG) as file:
            _compress(file, lines)
        self._enter(LOG)

    def finish(self, result: RunResult) -> tuple[Path, RunResult]:
        """Writes `run.json` with the hashes of all files, and gives the folder its name."""
        has_figures = bool(result.metrics or result.figures or result.steady)
        assert result.state is RunState.COMPLETE or not has_figures, "figures of a broken run"
        result = msgspec.structs.replace(result, files=dict(self._files))
        self._write_one(RUN, result, RunResult)
        try:
            _sync(self.part)
            self.part.rename(self.path)
            _sync(self.path.parent)
        except OSError as error:
            raise self._broke_off(RUN, error) from error
        return self.path, result

    def _write_one(self, name: str, value: T, kind: type[T]) -> None:
        with self._writing(name) as file:
            file.write(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")
        if _read_one(self.part / name, kind) != value:
            raise StoreError(f"{self.part / name} does not read back as it was written")
        self._enter(name)

    def _write_rows(self, name: str, rows: Sequence[T], kind: type[T]) -> None:
        encoder = msgspec.json.Encoder()
        with self._writing(name) as file:
            _compress(file, (encoder.encode(row) + b"\n" for row in rows))
        read = 0
        for read, (row, written) in enumerate(
            zip(_read_rows(self.part / name, kind), rows, strict=True), 1
        ):
            if row != written:
                raise StoreError(f"row {read} of {self.part / name} does not read back")
        self._enter(name)

    @contextmanager
    def _writing(self, name: str) -> Iterator[IO[bytes]]:
        """A file that is on the disk at the end of the block."""
        try:
            with (self.part / name).open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise self._broke_off(name, error) from error

    def _enter(self, name: str) -> None:
        self._files[name] = _entry(self.part / name)

    def _broke_off(self, name: str, error: OSError) -> StoreError:
        why = error.strerror or str(error)
        return StoreError(
            f"{name} could not be written ({why}); what there is of the run is kept as "
            f"{self.part}, and is no result"
        )


def load_run(folder: Path) -> RunResult:
    """`run.json`, of a folder whose files are those that were written. Raises `ConfigError`, like
    the two below: somebody named a folder that is no run."""
    if folder.name.endswith(PART):
        raise ConfigError(f"{folder} is no result: its writing broke off")
    with _named_by_somebody():
        result = _read_one(folder / RUN, RunResult)
    for name, entry in result.files.items():
        if not (folder / name).exists():
            raise ConfigError(f"{folder / name} is gone")
        if _entry(folder / name) != entry:
            raise ConfigError(f"{folder / name} is not the file that was written")
    return result


def load_records(folder: Path) -> list[RequestRecord]:
    with _named_by_somebody():
        return list(_read_rows(folder / REQUESTS, RequestRecord))


def load_samples(folder: Path) -> list[Sample]:
    """Empty where the run has none."""
    path = folder / SAMPLES
    with _named_by_somebody():
        return list(_read_rows(path, Sample)) if path.exists() else []


@contextmanager
def _named_by_somebody() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise ConfigError(error.message) from error


def _compress(file: IO[bytes], lines: Iterable[bytes]) -> None:
    # Without a time and a name in it: the same rows are the same bytes.
    with gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="") as packed:
        for line in lines:
            packed.write(line)


def _read_one(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise StoreError(f"{path} is not what it should be: {error}") from error


def _read_rows(path: Path, kind: type[T]) -> Iterator[T]:
    decoder = msgspec.json.Decoder(kind)
    number = 0
    try:
        with gzip.open(path) as lines:
            for line in lines:
                number += 1
                yield decoder.decode(line)
    except (OSError, EOFError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    except msgspec.DecodeError as error:
        raise StoreError(f"line {number} of {path} is not what it should be: {error}") from error


def _entry(path: Path) -> FileEntry:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileEntry(sha256=digest, bytes=path.stat().st_size)


def _sync(folder: Path) -> None:
    """A rename is on the disk when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
