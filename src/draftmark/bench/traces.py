"""Recorded loads: Mooncake, Azure, and JSON lines of our own form. Sizes and times, and which
prompts begin alike; where a trace has no text, its prompts are made of random ids.

A broken row is an error with its line: a load with holes is another load.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from datetime import datetime
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from draftmark.core.errors import ConfigError

MOONCAKE_BLOCK = 512

Row = TypeVar("Row")
_Positive = Annotated[int, msgspec.Meta(ge=1)]
_Seconds = Annotated[float, msgspec.Meta(ge=0)]


class TraceFormat(StrEnum):
    MOONCAKE = "mooncake"
    AZURE = "azure"
    JSONL = "jsonl"


class TraceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `at_s` counts from any beginning. `isl` tokens of prompt, in blocks of
    `block_tokens` (the last one may be shorter) with an id each: equal ids at equal depth are equal
    blocks. Or the prompt itself, as text or messages, and then `isl` is None."""

    line: int
    at_s: float
    isl: int | None
    osl: int
    block_ids: tuple[int, ...] = ()
    block_tokens: float = MOONCAKE_BLOCK
    text: str | None = None
    messages: list[dict[str, Any]] | None = None


def read_trace(path: Path, format: TraceFormat, *, limit: int | None = None) -> list[TraceRow]:
    """The first `limit` rows, in the order of their times. Raises `ConfigError` naming the line of
    a row that is broken or earlier than the one before it."""
    if limit is not None and limit < 1:
        raise ConfigError(f"--limit is at least 1, not {limit}", param="limit")
    readers = {
        TraceFormat.MOONCAKE: _mooncake,
        TraceFormat.AZURE: _azure,
        TraceFormat.JSONL: _own,
    }
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            rows = list(islice(readers[format](lines, str(path)), limit))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"trace {path}: cannot be read ({error})", param="trace") from error
    if not rows:
        raise ConfigError(f"trace {path}: no rows", param="trace")
    for row, earlier in zip(rows[1:], rows, strict=False):
        if row.at_s < earlier.at_s:
            raise _broken(str(path), row.line, "earlier than the row before it")
    return rows


class _MooncakeRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    timestamp: _Seconds  # milliseconds
    input_length: _Positive
    output_length: _Positive
    hash_ids: list[int]


def _mooncake(lines: Iterator[str], where: str) -> Iterator[TraceRow]:
    for number, row in _json_rows(lines, where, _MooncakeRow):
        blocks = math.ceil(row.input_length / MOONCAKE_BLOCK)
        if len(row.hash_ids) != blocks:
            fault = f"{len(row.hash_ids)} hash ids for {row.input_length} tokens, not {blocks}"
            raise _broken(where, number, fault)
        yield TraceRow(
            line=number,
            at_s=row.timestamp / 1000,
            isl=row.input_length,
            osl=row.output_length,
            block_ids=tuple(row.hash_ids),
        )


class _OwnRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`isl`, `prompt` or `messages`; with `isl`, `hash_ids` of blocks of `block_tokens`."""

    at_s: _Seconds
    osl: _Positive
    isl: _Positive | None = None
    hash_ids: list[int] | None = None
    block_tokens: _Positive = MOONCAKE_BLOCK
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None


def _own(lines: Iterator[str], where: str) -> Iterator[TraceRow]:
    for number, row in _json_rows(lines, where, _OwnRow):
        given = [name for name in ("isl", "prompt", "messages") if getattr(row, name) is not None]
        if len(given) != 1:
            fault = f"exactly one of isl, prompt and messages, not {' and '.join(given) or 'none'}"
            raise _broken(where, number, fault)
        block_ids = tuple(row.hash_ids or ())
        if block_ids and len(block_ids) != math.ceil((row.isl or 0) / row.block_tokens):
            raise _broken(
                where, number, f"{len(block_ids)} hash ids do not make up {row.isl} tokens"
            )
        yield TraceRow(
            line=number,
            at_s=row.at_s,
            isl=row.isl,
            osl=row.osl,
            block_ids=block_ids,
            block_tokens=row.block_tokens,
            text=row.prompt,
            messages=row.messages,
        )


_AZURE_COLUMNS = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]


def _azure(lines: Iterator[str], where: str) -> Iterator[TraceRow]:
    rows = csv.reader(lines)
    header = next(rows, [])
    if header != _AZURE_COLUMNS:
        raise _broken(where, 1, f"the columns are {','.join(_AZURE_COLUMNS)}, not {header}")
    first: datetime | None = None
    for number, row in enumerate(rows, 2):
        if len(row) != len(_AZURE_COLUMNS):
            raise _broken(where, number, f"{len(row)} columns, not {len(_AZURE_COLUMNS)}")
        at = _azure_time(row[0], where, number)
        first = first or at
        yield TraceRow(
            line=number,
            at_s=(at - first).total_seconds(),
            isl=_azure_count(row, 1, where, number),
            osl=_azure_count(row, 2, where, number),
        )


def _azure_time(text: str, where: str, number: int) -> datetime:
    """Seven decimal places, of which Python reads six."""
    whole, _, fraction = text.partition(".")
    try:
        return datetime.fromisoformat(f"{whole}.{fraction[:6]}" if fraction else whole)
    except ValueError as error:
        raise _broken(where, number, f"{text!r} is no time") from error


def _azure_count(row: list[str], column: int, where: str, number: int) -> int:
    if not row[column].isdecimal() or int(row[column]) < 1:
        raise _broken(where, number, f"{_AZURE_COLUMNS[column]} is {row[column]!r}, not a count")
    return int(row[column])


def _json_rows(lines: Iterator[str], where: str, kind: type[Row]) -> Iterator[tuple[int, Row]]:
    decode: Callable[[str], Row] = msgspec.json.Decoder(kind).decode
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = decode(line)
        except msgspec.DecodeError as error:
            raise _broken(where, number, str(error)) from error
        yield number, row


def _broken(where: str, number: int, fault: str) -> ConfigError:
    return ConfigError(f"trace {where}:{number}: {fault}", param="trace")
