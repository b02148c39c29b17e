"""The configuration tree as a flat list of options, and the one reader of their values.

A value comes from a flag (text), a file (what YAML made of it) or Python, and all of them go
through `read_value`, so that they mean the same and are refused in the same words. `auto` is the
text of None everywhere: in flags, in files and in documentation.
"""

from __future__ import annotations

import difflib
import functools
import types
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from enum import Enum, auto
from typing import TypeVar, Union, get_args, get_origin, get_type_hints

from draftmark.core.config import Config
from draftmark.core.errors import ConfigError

AUTO_TEXT = "auto"
_UNBOUNDED = 2**31 - 1
_Number = TypeVar("_Number", int, float)


class Kind(Enum):
    """What a value, or each item of a list, is."""

    TEXT = auto()
    INT = auto()
    FLOAT = auto()
    BOOL = auto()


_KINDS = {str: Kind.TEXT, int: Kind.INT, float: Kind.FLOAT, bool: Kind.BOOL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One field of the tree. `optional` fields take `auto`; `is_list` ones hold a tuple."""

    section: str
    name: str
    kind: Kind
    is_list: bool
    optional: bool
    default: object
    doc: str
    choices: tuple[str, ...]
    metavar: str
    low: float
    high: float
    open_low: bool

    @property
    def key(self) -> str:
        """Path in a file and in every record: `memory.kv_pool_tokens`."""
        return f"{self.section}.{self.name}"

    @property
    def flag(self) -> str:
        """`--kv-pool-tokens`. The model itself is the positional argument MODEL."""
        return "MODEL" if self.key == "model.model" else "--" + self.name.replace("_", "-")

    def value_in(self, config: Config) -> object:
        """This option's value in a tree."""
        return getattr(getattr(config, self.section), self.name)


@functools.cache
def options() -> tuple[Option, ...]:
    """Every option in the order of the tree."""
    found = []
    for section, section_type in get_type_hints(Config).items():
        hints = get_type_hints(section_type)
        for item in fields(section_type):
            assert item.default is not MISSING, f"{section}.{item.name} has no default"
            kind, is_list, optional = _shape(hints[item.name])
            found.append(
                Option(
                    section=section,
                    name=item.name,
                    kind=kind,
                    is_list=is_list,
                    optional=optional,
                    default=item.default,
                    **item.metadata,
                )
            )
    return tuple(found)


def _shape(hint: object) -> tuple[Kind, bool, bool]:
    """(kind, is_list, optional) of the type hint of a field."""
    if get_origin(hint) in (Union, types.UnionType):
        inner = [arg for arg in get_args(hint) if arg is not types.NoneType]
        assert len(inner) == 1, f"unexpected type of a configuration field: {hint}"
        return _KINDS[inner[0]], False, True
    if get_origin(hint) is tuple:
        return _KINDS[get_args(hint)[0]], True, False
    assert isinstance(hint, type)
    return _KINDS[hint], False, False


@functools.cache
def options_by_name() -> dict[str, Option]:
    """Options by field name; names are unique over the sections, as flags must be."""
    by_name = {option.name: option for option in options()}
    assert len(by_name) == len(options()), "two sections share a field name"
    return by_name


def read_value(option: Option, value: object, *, where: str) -> object:
    """The field value that `value` means. Raises `ConfigError` naming `where` and the field."""
    try:
        return _read(option, value)
    except _Refused as refusal:
        shown = "nothing" if value is None else repr(value)
        raise ConfigError(
            f"{where} must be {expected(option)}; got {shown}{refusal.hint}", param=option.name
        ) from None


class _Refused(Exception):
    """A value that does not fit; `hint` ends the message."""

    def __init__(self, hint: str = "") -> None:
        self.hint = hint


def _read(option: Option, value: object) -> object:
    if option.optional and (value is None or value == AUTO_TEXT):
        return None
    if not option.is_list:
        return _read_item(option, value)
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")] if value.strip() else []
    if isinstance(value, list | tuple):
        return tuple(_read_item(option, item) for item in value)
    return (_read_item(option, value),)


def _read_item(option: Option, value: object) -> object:
    match option.kind:
        case Kind.TEXT:
            return _read_text(option, value)
        case Kind.BOOL:
            return _read_bool(value)
        case Kind.INT:
            return _in_range(option, _read_int(value))
        case Kind.FLOAT:
            return _in_range(option, _read_float(value))


def _read_text(option: Option, value: object) -> str:
    if not isinstance(value, str):
        raise _Refused(" (put it in quotes)" if value is not None else "")
    if not value.strip() or not value.isprintable():
        raise _Refused()
    if option.choices and value not in option.choices:
        raise _Refused(did_you_mean(value, option.choices))
    return value


def _read_bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise _Refused()


def _read_int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise _Refused()
    try:
        return int(value)
    except ValueError:
        raise _Refused() from None


def _read_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _Refused()
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise _Refused() from None


def _in_range(option: Option, number: _Number) -> _Number:
    above = number > option.low if option.open_low else number >= option.low
    if not (above and number <= option.high):  # NaN fails both
        raise _Refused()
    return number


def expected(option: Option) -> str:
    """What the option takes, in words: `a whole number from 1 to 65535, or auto`."""
    what = _expected_item(option)
    if option.is_list:
        what = f"a comma separated list, each item {what}"
    return f"{what}, or auto" if option.optional else what


def _expected_item(option: Option) -> str:
    if option.choices:
        return "one of " + ", ".join(option.choices)
    match option.kind:
        case Kind.TEXT:
            return "text"
        case Kind.BOOL:
            return "true or false"
        case Kind.INT:
            noun = "a whole number"
        case Kind.FLOAT:
            noun = "a number"
    if option.open_low:
        low = f"above {option.low:g}"
        return noun + f" {low}" + ("" if option.high == _UNBOUNDED else f", at most {option.high}")
    if option.high == _UNBOUNDED:
        return f"{noun} of at least {option.low}"
    return f"{noun} from {option.low} to {option.high}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean X?)`, or nothing when no known word is near."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""
