"""Prompts from a file of a data folder: JSON lines of our own form, of GSM8K or of MT-Bench, and
plain text with one prompt a line.

A row says what it is by its keys: `messages`, `prompt` (text), `prompt_ids`, `question` (GSM8K) or
`turns` (MT-Bench: the first is asked). `max_tokens` may say how long its answer may be. No prompt
is ever sent twice in a run to fill it up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from draftmark.bench.prompts.prompt import Prompt
from draftmark.core.errors import ConfigError

T = TypeVar("T")
NonEmpty = Annotated[list[T], msgspec.Meta(min_length=1)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
PositiveInt = Annotated[int, msgspec.Meta(ge=1)]

_KINDS = ("messages", "prompt", "prompt_ids", "question", "turns")


def file_prompts(path: Path, *, count: int, seed: int) -> list[Prompt]:
    """`count` prompts of the file, in an order that the seed decides. Raises `ConfigError` for a
    broken row, with its line, and for a file of fewer prompts."""
    prompts = list(read_prompts(path))
    if len(prompts) < count:
        raise ConfigError(
            f"{path} has {len(prompts)} prompts, the profile asks for {count} requests; a prompt "
            "is never sent twice in a run",
            param="n_requests",
        )
    return sorted(prompts, key=lambda prompt: _rank(prompt, seed))[:count]


def read_prompts(path: Path) -> Iterator[Prompt]:
    """All prompts of the file, in its order; empty lines are skipped."""
    try:
        # Not splitlines(): a text may hold other characters that end a line.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})", param="file") from error
    is_text = path.suffix == ".txt"
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield Prompt(text=line) if is_text else _read_row(line, where=f"{path}:{number}")


def data_file(data: Path | None, file: str) -> Path:
    """The path of a profile's `file`, which is below the data folder or absolute."""
    if Path(file).is_absolute():
        return Path(file)
    if data is None:
        raise ConfigError(
            f"the profile's prompts are in {file}, below a data folder: give it with --data DIR",
            param="data",
        )
    return data / file


def _read_row(line: str, *, where: str) -> Prompt:
    try:
        row = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: not a JSON object ({error})", param="file") from error
    kinds = [kind for kind in _KINDS if kind in row]
    if len(kinds) != 1:
        raise ConfigError(
            f"{where}: a row has exactly one of {', '.join(_KINDS)}, this one has "
            f"{' and '.join(kinds) or 'none'}",
            param="file",
        )
    try:
        return _prompt_of(kinds[0], row)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {kinds[0]}: {error}", param="file") from error


def _prompt_of(kind: str, row: dict[str, Any]) -> Prompt:
    osl = msgspec.convert(row.get("max_tokens"), PositiveInt | None)
    value = row[kind]
    match kind:
        case "messages":
            messages = msgspec.convert(value, NonEmpty[dict[str, Any]])
            return Prompt(messages=messages, osl=osl)
        case "prompt_ids":
            return Prompt(ids=msgspec.convert(value, NonEmpty[TokenId]), osl=osl)
        case "turns":
            return Prompt(text=msgspec.convert(value, NonEmpty[Text])[0], osl=osl)
        case _:
            return Prompt(text=msgspec.convert(value, Text), osl=osl)


def _rank(prompt: Prompt, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}/{prompt.sha256}".encode()).digest()
