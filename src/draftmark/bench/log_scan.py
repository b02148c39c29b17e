"""The server's own log of a run: the slice between two marks, and the lines in it that say that
something went wrong or was switched off.

A log that was rotated or cut between the marks is refused: half a log is clean for no reason.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from draftmark.bench.result import LogFinding
from draftmark.core.errors import ConfigError, Unavailable

_MAX_EXAMPLES = 5
_MAX_LINE = 300
_COMMAND_TIMEOUT_S = 60


class LogClass(msgspec.Struct, frozen=True):
    """`limit` is how many lines of it a sound run may have; None tells them and limits nothing."""

    name: str
    pattern: re.Pattern[str]
    limit: int | None


def _class(name: str, pattern: str, limit: int | None = None) -> LogClass:
    return LogClass(name, re.compile(pattern, re.IGNORECASE), limit)


# A name in a dumped configuration (`on_nan`, `disable_x=False`, `--on-nan`) is no event: an
# underscore or a hyphen joins a word to its name.
CLASSES: tuple[LogClass, ...] = (
    _class("nan", r"(?<![\w-])(?:nans?|non-finite)(?![\w-])", 0),
    # Every one of them must be on the list of allowed lines.
    _class("fallback", r"(?<![\w-])(?:fall(?:s|ing)?[ -]?backs?|fell back)(?![\w-])", 0),
    _class(
        "feature_disabled",
        r"(?<![\w-])(?:disabled|disabling|not supported|unsupported|will be ignored"
        r"|is ignored|ignoring)(?![\w-])",
    ),
    _class("oom", r"out of memory|OutOfMemory|(?<![\w-])oom(?![\w-])|oom-kill", 0),
    _class("retract", r"(?<![\w-])(?:retract(?:ed|ing|ion)?|preempt(?:ed|ing|ion))(?![\w-])"),
    _class("xid", r"NVRM: Xid|(?<!\w)Xid \(", 0),
    _class("nccl", r"NCCL (?:WARN|ERROR)|ncclInternalError|ncclSystemError|ncclRemoteError"),
    _class("traceback", r"Traceback \(most recent call last\)|panicked at|Segmentation fault", 0),
)


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A moment in a log: `offset` bytes into the file `inode`, or a time of another kind of log."""

    time: datetime
    inode: int | None = None
    offset: int | None = None


class LogSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where the log is: `mark` now, `slice` between two marks."""

    title: str
    mark: Callable[[], Mark]
    slice: Callable[[Mark, Mark], bytes]


def open_log(name: str) -> LogSource:
    """`file:PATH`, `docker:CONTAINER` or `journald:UNIT`; a bare path is a file."""
    kind, colon, rest = name.partition(":")
    if not colon or kind not in ("file", "docker", "journald"):
        kind, rest = "file", name
    if not rest:
        raise ConfigError(f"--log {name}: nothing after {kind}:", param="log")
    if kind == "file":
        path = Path(rest)
        return LogSource(
            title=name, mark=lambda: _mark_file(path), slice=lambda a, b: _cut_file(path, a, b)
        )
    build = _docker if kind == "docker" else _journald
    return LogSource(
        title=name, mark=_mark_time, slice=lambda a, b: _output_of(build(rest, a.time, b.time))
    )


def scan_log(
    data: bytes, *, allowed: Iterable[str] = (), limits: Mapping[str, int | None] | None = None
) -> list[LogFinding]:
    """One row a class, also of those without a line. Lines that hold one of `allowed` (regular
    expressions) do not count. `limits` replace those of `CLASSES` by name."""
    limits = limits or {}
    if unknown := limits.keys() - {one.name for one in CLASSES}:
        raise ConfigError(f"no class of log lines is called {', '.join(sorted(unknown))}")
    accepted = [_compiled(pattern) for pattern in allowed]
    lines = [
        line
        for line in data.decode("utf-8", "replace").splitlines()
        if not any(pattern.search(line) for pattern in accepted)
    ]
    return [_finding(one, lines, limits.get(one.name, one.limit)) for one in CLASSES]


def check_allowed(allowed: Iterable[str]) -> None:
    """Before a run. Raises `ConfigError` for what is no regular expression."""
    for pattern in allowed:
        _compiled(pattern)


def _finding(one: LogClass, lines: list[str], limit: int | None) -> LogFinding:
    found = [line[:_MAX_LINE] for line in lines if one.pattern.search(line)]
    return LogFinding(klass=one.name, count=len(found), limit=limit, examples=found[:_MAX_EXAMPLES])


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"allowed log line {pattern!r}: {error}", param="allow") from error


def _mark_time() -> Mark:
    return Mark(time=datetime.now(UTC))


def _mark_file(path: Path) -> Mark:
    try:
        found = path.stat()
    except OSError as error:
        raise ConfigError(f"--log {path}: {error.strerror}", param="log") from error
    return Mark(time=datetime.now(UTC), inode=found.st_ino, offset=found.st_size)


def _cut_file(path: Path, a: Mark, b: Mark) -> bytes:
    assert a.offset is not None and b.offset is not None
    if a.inode != b.inode or b.offset < a.offset:
        raise Unavailable(f"log {path} was rotated or cut during the run: it proves nothing")
    with path.open("rb") as file:
        file.seek(a.offset)
        data = file.read(b.offset - a.offset)
    if len(data) != b.offset - a.offset:
        raise Unavailable(f"log {path} was cut while it was read: it proves nothing")
    return data


def _docker(container: str, since: datetime, until: datetime) -> list[str]:
    span = ["--since", since.isoformat(), "--until", until.isoformat()]
    return ["docker", "logs", *span, container]


def _journald(unit: str, since: datetime, until: datetime) -> list[str]:
    span = [f"--since=@{since.timestamp():.6f}", f"--until=@{until.timestamp():.6f}"]
    return ["journalctl", "--no-pager", "--output=short-iso-precise", f"--unit={unit}", *span]


def _output_of(command: list[str]) -> bytes:
    """Both streams of a command: docker gives the container's two on its own two."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{' '.join(command)}: {error}") from error
    if done.returncode:
        shown = done.stdout[-_MAX_LINE:].decode("utf-8", "replace").strip()
        raise Unavailable(f"{' '.join(command)} ended with status {done.returncode}: {shown}")
    return done.stdout
