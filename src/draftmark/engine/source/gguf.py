"""Converts a .gguf file once, into a cache keyed by the file's content.

The work is done by a subprocess, because it needs numpy and we stay small. Two starts at once are
ordered by a lock that the kernel drops when its holder dies; the directory appears whole or not.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from draftmark.core.errors import ModelError

CONVERTER = ("-m", "draftmark.models.gguf")

# Part of the key: raise it when the converter's output changes.
_FORMAT = 1
_HASH_WHOLE_BYTES = 1 << 30
_HASH_END_BYTES = 1 << 24


def convert_once(file: Path, *, name: str, cache: Path, progress: Callable[[str], None]) -> Path:
    """The directory of the converted model. Raises `ModelError`, or `OSError` of the disk."""
    safe_name = re.sub(r"[^A-Za-z0-9._-]+", "-", name)
    directory = cache / f"{safe_name}-{content_key(file)}"
    if directory.is_dir():
        return directory
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(directory.with_name(directory.name + ".lock"), progress=progress):
        if not directory.is_dir():
            progress(f"converting {file.name} (once)")
            _convert(file, directory, progress=progress)
    return directory


def content_key(file: Path) -> str:
    """12 hexadecimal digits. A file above 1 GiB is known by its size, time and both ends."""
    status = file.stat()
    digest = hashlib.sha256(f"{_FORMAT}:{status.st_size}:".encode())
    with file.open("rb") as stream:
        if status.st_size <= _HASH_WHOLE_BYTES:
            while block := stream.read(_HASH_END_BYTES):
                digest.update(block)
        else:
            digest.update(f"{status.st_mtime_ns}:".encode())
            digest.update(stream.read(_HASH_END_BYTES))
            stream.seek(-_HASH_END_BYTES, os.SEEK_END)
            digest.update(stream.read(_HASH_END_BYTES))
    return digest.hexdigest()[:12]


def _convert(file: Path, directory: Path, *, progress: Callable[[str], None]) -> None:
    """In a directory beside `directory`, then renamed. Held by the lock of `directory`."""
    partial = directory.with_name(directory.name + ".partial")
    with contextlib.suppress(FileNotFoundError):  # the usual case
        shutil.rmtree(partial)  # of a start that was killed, with the converter's own scratch in it
    partial.mkdir()
    try:
        _run_converter(file, partial / "model", progress=progress)
        (partial / "model").rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _run_converter(file: Path, target: Path, *, progress: Callable[[str], None]) -> None:
    """The converter prints a JSON object as it goes on, and one plain line when it must give up.
    It is in our process group, so that Ctrl-C ends it too.
    """
    command = [sys.executable, "-P", *CONVERTER, str(file), str(target)]
    reason = ""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as converter:
        assert converter.stdout is not None
        told = ""
        for raw in converter.stdout:
            line = raw.decode(errors="replace").strip()
            if not line.startswith("{"):
                reason = line or reason
            elif (said := f"converting {file.name}: {_read_progress(line)}") != told:
                progress(said)
                told = said
    if converter.returncode != 0:
        reason = reason or f"the converter ended with status {converter.returncode}"
        raise ModelError(f"cannot convert {file}: {reason}", param="model")


def _read_progress(line: str) -> str:
    """`weights 40 %` in steps of ten, so that a log is not flooded."""
    step = msgspec.json.decode(line, type=_Progress)
    return f"{step.phase} {step.done * 10 // max(step.total, 1) * 10} %"


class _Progress(msgspec.Struct):
    phase: str
    done: int
    total: int


@contextlib.contextmanager
def _locked(path: Path, *, progress: Callable[[str], None]) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another start that is converting the same model")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
