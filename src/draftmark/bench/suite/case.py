"""One case: a request, and what must be true of its answer. A YAML file each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from draftmark.bench.ask import CHAT
from draftmark.bench.strict_yaml import read_yaml
from draftmark.core.errors import ConfigError


class Bounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Both ends belong to it."""

    min: int | None = None
    max: int | None = None


class TextRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a text: its length in characters, what it holds and does not hold (as it stands),
    a regular expression found in it, whether all of it is JSON."""

    min: int | None = None
    max: int | None = None
    contains: list[str] = []
    lacks: list[str] = []
    matches: str | None = None
    json: bool = False


class WantedCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`arguments` are those that must be there, with these values."""

    name: str
    arguments: dict[str, Any] = {}


class Expect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is left out is not looked at, but for `http` and `tools`: no call is wanted unless
    calls are. `same_as` names an earlier case with the same text and calls."""

    http: tuple[int, ...] = (200,)
    finish: list[str] | None = None
    content: TextRule | None = None
    reasoning: TextRule | None = None
    tools: list[WantedCall] = []
    tokens: Bounds | None = None
    prompt_tokens: Bounds | None = None
    chunks: Bounds | None = None
    error: TextRule | None = None
    same_as: str | None = None


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`body` goes out with the model's name and temperature 0 unless it says otherwise."""

    id: str
    title: str
    tags: list[str] = []
    path: str = CHAT
    body: dict[str, Any]
    expect: Expect


def shipped_cases() -> list[Case]:
    return _read_all(files("draftmark.bench.suite").joinpath("cases").iterdir())


def read_cases(folder: Path) -> list[Case]:
    """All `.yaml` files of a folder, by id. Raises `ConfigError` naming the file and the fault."""
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder of cases", param="cases")
    return _read_all(folder.iterdir())


def choose_cases(cases: Sequence[Case], wanted: str) -> list[Case]:
    """`all`, or ids, ranges of ids and tags: `d01-d05,d09,tools`. A case that another must equal
    comes along. Raises `ConfigError` for a word that chooses nothing."""
    chosen: set[str] = set()
    for word in (part.strip() for part in wanted.split(",")):
        found = [case.id for case in cases if _is_chosen(case, word)]
        if not found:
            raise ConfigError(f"--cases {word}: no case has that id or tag", param="cases")
        chosen.update(found)
    # From the last: what a case must equal is an earlier one, and may have one of its own.
    for case in reversed(cases):
        if case.id in chosen and case.expect.same_as is not None:
            chosen.add(case.expect.same_as)
    return [case for case in cases if case.id in chosen]


def _is_chosen(case: Case, word: str) -> bool:
    span = re.fullmatch(r"([a-z]\d+)-([a-z]\d+)", word)
    if span:
        return span[1] <= case.id <= span[2]
    return word in ("all", case.id) or word in case.tags


def _read_all(paths: Iterable[Traversable]) -> list[Case]:
    cases = sorted(
        (_read(path) for path in paths if path.name.endswith(".yaml")), key=lambda case: case.id
    )
    ids = [case.id for case in cases]
    if len(set(ids)) < len(ids):
        raise ConfigError(f"two cases share an id: {', '.join(ids)}", param="cases")
    for place, case in enumerate(cases):
        other = case.expect.same_as
        if other is not None and other not in ids[:place]:
            raise ConfigError(f"case {case.id}: same_as {other} is no earlier case", param="cases")
    return cases


def _read(path: Traversable) -> Case:
    try:
        case = msgspec.convert(read_yaml(path.read_bytes()), Case)
        for rule in (case.expect.content, case.expect.reasoning, case.expect.error):
            re.compile((rule and rule.matches) or "")
    except (yaml.YAMLError, msgspec.ValidationError, re.error) as error:
        raise ConfigError(f"case {path.name}: {error}", param="cases") from error
    return case
