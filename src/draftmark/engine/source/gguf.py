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
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

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
            _convert(file, directory)
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


def _convert(file: Path, directory: Path) -> None:
    """Into a directory beside `directory`, then renamed. Held by the lock of `directory`."""
    partial = directory.with_name(directory.name + ".partial")
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(partial)  # of a start that was killed
    try:
        _run_converter(file, partial)
        partial.rename(directory)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _run_converter(file: Path, target: Path) -> None:
    """In our process group, so that Ctrl-C ends it too."""
    command = [sys.executable, "-P", *CONVERTER, str(file), str(target)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode != 0:
        last = deque(done.stdout.decode(errors="replace").strip().splitlines(), maxlen=1)
        reason = last[0] if last else f"the converter ended with status {done.returncode}"
        raise ModelError(f"cannot convert {file}: {reason}", param="model")


@contextlib.contextmanager
def _locked(path: Path, *, progress: Callable[[str], None]) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another start that is converting the same model")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
