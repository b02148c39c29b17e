"""The file of a ledger: read whole and checked, appended to under a lock, synced line by line.

A process that dies while it writes leaves a torn last line. Its command had not returned, so
nothing was sent on the strength of that line. Readers say that it is there; writers refuse
until `repair`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from draftmark.bench.ledger.entries import FIRST, Entry, Opened, Repaired
from draftmark.core.errors import ConfigError


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """Entries with the SHA-256 of their lines, and the bytes of a torn last line."""

    entries: list[tuple[str, Entry]]
    torn: bytes

    @property
    def last_sha(self) -> str:
        return self.entries[-1][0] if self.entries else FIRST


class Session:
    """A ledger under its exclusive lock. `reading` grows with what is appended."""

    def __init__(self, fd: int, path: Path, reading: Reading) -> None:
        self._fd, self._path, self.reading = fd, path, reading

    def begin(self) -> None:
        """Write the first line, where there is none yet."""
        if not self.reading.entries and not self.reading.torn:
            self.append(lambda prev, at: Opened(prev=prev, at=at, ledger=uuid.uuid4().hex))
            _sync_folder(self._path)

    def append(self, make: Callable[[str, str], Entry]) -> str:
        """Write `make(prev, at)` and sync it to the disk; the SHA-256 of the line. When the disk is
        full, nothing of the line stays and `ConfigError` is raised."""
        if self.reading.torn:
            raise torn_error(self._path, self.reading)
        entry = make(self.reading.last_sha, datetime.now(UTC).isoformat(timespec="seconds"))
        line = msgspec.json.encode(entry)
        size = os.fstat(self._fd).st_size
        try:
            _write(self._fd, line + b"\n")
            os.fsync(self._fd)
        except OSError as error:
            os.ftruncate(self._fd, size)
            raise ConfigError(
                f"ledger {self._path}: cannot be written ({error.strerror})"
            ) from error
        sha = hashlib.sha256(line).hexdigest()
        self.reading.entries.append((sha, entry))
        return sha

    def repair(self) -> int:
        """Cut a torn last line off, and say so in the ledger; how many bytes it had."""
        torn = self.reading.torn
        if not torn:
            return 0
        os.ftruncate(self._fd, os.fstat(self._fd).st_size - len(torn))
        self.reading = Reading(entries=self.reading.entries, torn=b"")
        self.begin()
        sha256 = hashlib.sha256(torn).hexdigest()
        self.append(
            lambda prev, at: Repaired(prev=prev, at=at, torn_sha256=sha256, torn_bytes=len(torn))
        )
        return len(torn)


def read_journal(path: Path) -> Reading:
    """Raises `ConfigError` when there is none, or a line is broken."""
    fd = _open(path, os.O_RDONLY)
    try:
        # Shared: no writer is in the middle of a line meanwhile.
        fcntl.flock(fd, fcntl.LOCK_SH)
        return parse(_read(fd), where=str(path))
    finally:
        os.close(fd)


@contextmanager
def locked(path: Path, *, create: bool = False) -> Iterator[Session]:
    """The ledger, and nobody else's until the end of the block. With `create`, a new one is begun
    where there is none."""
    fd = _open(path, os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0))
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        session = Session(fd, path, parse(_read(fd), where=str(path)))
        session.begin()
        yield session
    finally:
        os.close(fd)


def parse(content: bytes, *, where: str) -> Reading:
    """Raises `ConfigError` for a line that is no entry or does not follow the one before."""
    lines = content.split(b"\n")
    entries: list[tuple[str, Entry]] = []
    decoder: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)
    prev = FIRST
    for number, line in enumerate(lines[:-1], 1):
        try:
            entry = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"ledger {where}:{number}: not an entry ({error})") from error
        if entry.prev != prev:
            raise ConfigError(
                f"ledger {where}:{number}: the chain is broken: this line follows "
                f"{entry.prev[:12]}, the one before it is {prev[:12]}"
            )
        prev = hashlib.sha256(line).hexdigest()
        entries.append((prev, entry))
    return Reading(entries=entries, torn=lines[-1])


def torn_error(path: Path, reading: Reading) -> ConfigError:
    return ConfigError(
        f"ledger {path}: line {len(reading.entries) + 1} is torn ({len(reading.torn)} bytes, no "
        "end): a process died while it wrote; cut it off with `ledger repair`"
    )


def _open(path: Path, flags: int) -> int:
    if path.is_dir():
        raise ConfigError(f"ledger {path}: a folder, not a file")
    try:
        return os.open(path, flags, 0o644)
    except FileNotFoundError as error:
        if flags & os.O_CREAT:
            raise ConfigError(f"ledger {path}: there is no folder {path.parent}") from error
        raise ConfigError(f"no ledger at {path}: begin one with `ledger add`") from error
    except OSError as error:
        raise ConfigError(f"ledger {path}: cannot be opened ({error.strerror})") from error


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _read(fd: int) -> bytes:
    pieces = []
    while piece := os.read(fd, 1 << 20):
        pieces.append(piece)
    return b"".join(pieces)


def _sync_folder(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
