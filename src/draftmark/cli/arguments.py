"""Parsers made from the configuration tree, and what they say about flags that are not ours.

`CommandParser` never exits and never prints an error: what is wrong is a `ConfigError`. Values of
the tree are kept as text and read by `core.options`, like those of a file.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, get_type_hints

from draftmark.core.config import Config
from draftmark.core.errors import ConfigError
from draftmark.core.foreign_flags import explain
from draftmark.core.options import AUTO_TEXT, Kind, Option, did_you_mean, options
from draftmark.core.request import SamplingParams
from draftmark.core.resolve import Declared, check_built, load_config

ENGINE_SECTIONS = tuple(name for name in get_type_hints(Config) if name != "server")
ALL_SECTIONS = tuple(get_type_hints(Config))
_LEFT_OUT = argparse.SUPPRESS


class CommandParser(argparse.ArgumentParser):
    """Parser of one command. Flags are spelled in full, so that a new flag breaks no script."""

    def __init__(self, command: str, *, about: str, takes: str = "[MODEL] [FLAGS]") -> None:
        super().__init__(
            prog=f"draftmark {command}",
            usage=f"draftmark {command} {takes}",
            description=about,
            formatter_class=_Formatter,
            add_help=False,
            allow_abbrev=False,
        )
        self._own = self.add_argument_group("this command")
        # Not "-h": argparse would also see it in -hf, a flag of another engine.
        self.own("--help", action="help", help="Show this and leave (also -h).")

    def own(self, *names: str, **settings: object) -> None:
        """Add a flag that belongs to the command, not to the tree."""
        self._own.add_argument(*names, **settings)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message.removeprefix("argument "))

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Like `parse_args`; a flag nobody knows is explained. Raises `ConfigError`."""
        known, rest = self.parse_known_args(["--help" if word == "-h" else word for word in argv])
        for word in rest:
            if word.startswith("-") and word != "--":
                raise ConfigError(self._explain(word.partition("=")[0]))
        if rest:
            raise ConfigError(f"unexpected argument {rest[0]}")
        return known

    def _explain(self, flag: str) -> str:
        ours = [name for action in self._actions for name in action.option_strings]
        return explain(flag) or f"unknown flag {flag}{did_you_mean(flag, ours)}"


class _Formatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=100)


def add_config_flags(parser: CommandParser, *, sections: Sequence[str]) -> None:
    """MODEL, `--config` and one flag for each field of `sections`."""
    titles = get_type_hints(Config)
    for section in sections:
        about = inspect.getdoc(titles[section])
        group = parser.add_argument_group(section, about)
        for option in options():
            if option.section == section:
                _add_option(group, option)
    parser.own(
        "--config",
        metavar="FILE",
        help="YAML file with the same settings by section; flags win over it.",
    )


def _add_option(group: argparse._ArgumentGroup, option: Option) -> None:
    text = help_text(option).replace("%", "%%")
    if option.key == "model.model":
        group.add_argument("model", nargs="?", default=_LEFT_OUT, metavar="MODEL", help=text)
    elif option.kind is Kind.BOOL:
        group.add_argument(
            option.flag, action=argparse.BooleanOptionalAction, default=_LEFT_OUT, help=text
        )
    else:
        metavar = option.metavar or "|".join(option.choices)
        group.add_argument(
            option.flag, dest=option.name, default=_LEFT_OUT, metavar=metavar, help=text
        )


def help_text(option: Option) -> str:
    """The field's documentation and default."""
    return f"{option.doc} [default: {default_text(option)}]"


def default_text(option: Option) -> str:
    """The default as one would type it, `not set` where there is nothing to type."""
    if option.default is None and AUTO_TEXT in option.doc:
        return AUTO_TEXT
    if option.default is None or option.default == ():
        return "not set"
    if isinstance(option.default, tuple):
        return ",".join(str(item) for item in option.default)
    if isinstance(option.default, bool):
        return "on" if option.default else "off"
    return str(option.default)


def add_sampling_flags(parser: CommandParser, *, max_tokens: int | None) -> None:
    """How tokens are chosen; what is left out is the model's or the server's business."""
    limit = "the rest of the context" if max_tokens is None else str(max_tokens)
    parser.own(
        "--max-tokens",
        type=int,
        default=max_tokens,
        metavar="N",
        help=f"Most tokens of an answer. [default: {limit}]",
    )
    for name, kind, about in _SAMPLING:
        flag = "--" + name.replace("_", "-")
        parser.own(flag, type=kind, default=_LEFT_OUT, metavar="X", help=about)


_SAMPLING = (
    ("temperature", float, "0 takes the most likely token. [default: the model's]"),
    ("top_p", float, "Share of probability to choose from. [default: the model's]"),
    ("top_k", int, "Number of tokens to choose from, 0 for all. [default: the model's]"),
)


def sampling_from(namespace: argparse.Namespace) -> dict[str, Any]:
    """The request fields that were given. Raises `RequestError` for one that is out of range."""
    names = ("max_tokens", *(name for name, _, _ in _SAMPLING))
    values = vars(namespace)
    given = {name: values[name] for name in names if values.get(name) is not None}
    SamplingParams(**given).validate(vocab_size=0)
    return given


def given_from(namespace: argparse.Namespace) -> dict[str, Any]:
    """The fields of the tree that were given as flags, by name."""
    values = vars(namespace)
    return {option.name: values[option.name] for option in options() if option.name in values}


def declared_from(namespace: argparse.Namespace) -> Declared:
    """The declared configuration of parsed arguments. Raises `ConfigError`, also for what is not
    built yet: before any process starts.
    """
    file = vars(namespace).get("config")
    declared = load_config(given_from(namespace), None if file is None else Path(file))
    check_built(declared.config)
    return declared
