"""One result in one file: what quality, the suite and the comparison in a crowd found.

Written beside its place and renamed once it reads back, strictly by its type, as what it is: what a
full disk leaves keeps the name `.part` and is nobody's result.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from draftmark.bench.store import PART, StoreError
from draftmark.core.errors import ConfigError

_Value = TypeVar("_Value", bound=msgspec.Struct)


def check_new(path: Path) -> None:
    """Before the work whose result goes there. Raises `ConfigError` when there is one already."""
    if path.exists():
        raise ConfigError(f"{path} is there already: results are not written over")


def write_value(path: Path, value: msgspec.Struct) -> None:
    """Raises `ConfigError` when the file is there already, `StoreError` when it cannot be
    written."""
    check_new(path)
    part = path.with_name(path.name + PART)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(f"{part}: {error.strerror}; what was written is kept") from error
    if read_value(part, type(value)) != value:
        raise StoreError(f"{part} does not read back as it was written")
    part.rename(path)


def read_value(path: Path, kind: type[_Value]) -> _Value:
    """Raises `ConfigError` for what is no such file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
