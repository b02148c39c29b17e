"""A run as a file: what the worker was started with, every plan sent to it, every result back.

JSON lines. The first is the header, then one object a line: {"plan": ...} or {"result": ...}, in
the order they crossed, so results come one or two plans late. `draftmark rerun FILE` executes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec

from draftmark.core.errors import ConfigError
from draftmark.core.start import AllocatePools, LoadWeights, WorkerInit
from draftmark.core.step import StepPlan, StepResult

FORMAT = 1


class RecordingHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a worker is told before the first plan. `about` is for people."""

    format: int = FORMAT
    init: WorkerInit
    load: LoadWeights
    pools: AllocatePools
    about: dict[str, str] = {}


class _PlanLine(msgspec.Struct, frozen=True):
    plan: StepPlan


class _ResultLine(msgspec.Struct, frozen=True):
    result: StepResult


class PlanRecorder:
    """Writes one file; every line is flushed, so that a crash leaves the plan that caused it."""

    def __init__(self, path: Path, header: RecordingHeader) -> None:
        """Raises `ConfigError` when the file cannot be written."""
        self._encode = msgspec.json.Encoder().encode
        try:
            self._file = path.open("wb")
        except OSError as error:
            raise ConfigError(
                f"--record-plans: cannot write {path}: {error.strerror}", param="record_plans"
            ) from error
        self._write(header)

    def plan(self, plan: StepPlan) -> None:
        self._write(_PlanLine(plan))

    def result(self, result: StepResult) -> None:
        self._write(_ResultLine(result))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> PlanRecorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, line: msgspec.Struct) -> None:
        self._file.write(self._encode(line) + b"\n")
        self._file.flush()


@dataclass(frozen=True, slots=True)
class Recording:
    """A file that was opened. `steps` reads on, and may be read once."""

    header: RecordingHeader
    steps: Iterator[StepPlan | StepResult]


def open_recording(path: Path) -> Recording:
    """Raises `ConfigError` naming file and line for what is no recording. A last line without its
    end (the writer was killed) is left out."""
    try:
        lines = _lines(path)
        first = next(lines, (0, b""))[1]
        header = msgspec.json.decode(first, type=RecordingHeader)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path} is no recording of a run: {error}") from error
    if header.format != FORMAT:
        raise ConfigError(f"{path} has format {header.format}, this version reads {FORMAT}")
    return Recording(header, _steps(path, lines))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                yield number, line


def _steps(path: Path, lines: Iterator[tuple[int, bytes]]) -> Iterator[StepPlan | StepResult]:
    decode_plan = msgspec.json.Decoder(_PlanLine).decode
    decode_result = msgspec.json.Decoder(_ResultLine).decode
    for number, line in lines:
        try:
            if line.startswith(b'{"plan"'):
                yield decode_plan(line).plan
            else:
                yield decode_result(line).result
        except msgspec.DecodeError as error:
            raise ConfigError(f"{path}, line {number}: {error}") from error
