"""Declared settings, read from a YAML file, a compose file, or a script with the command.

What was read is named with its path and its hash, so that "the file" is one particular file.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
import yaml

from draftmark.bench.declared.names import spelled
from draftmark.bench.strict_yaml import read_yaml
from draftmark.core.errors import ConfigError

_LAUNCHERS = re.compile(
    r"\bvllm\s+serve\b|\bvllm\.entrypoints\b|\bsglang\b|\bdraftmark\s+serve\b|\bllama-server\b"
)
# Flags of these beginnings take no value.
_SWITCHES = ("enable_", "disable_", "no_", "enforce_", "trust_", "skip_", "allow_")


class Kind(StrEnum):
    YAML = "yaml"
    COMPOSE = "compose"
    ARGV = "argv"


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """`values` by the file's own names, nested ones with dots between."""

    path: str
    sha256: str
    kind: Kind
    values: dict[str, Any]


def read_declared(path: Path, *, service: str | None = None) -> Declared:
    """`service` chooses one of a compose file. Raises `ConfigError` with what is wrong."""
    try:
        data = path.read_bytes()
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--declared {path}: {error}", param="declared") from error
    kind, values = _parse(path, text, service)
    if not values:
        raise ConfigError(f"--declared {path}: no setting found in it", param="declared")
    return Declared(
        path=str(path), sha256=hashlib.sha256(data).hexdigest(), kind=kind, values=values
    )


def _parse(path: Path, text: str, service: str | None) -> tuple[Kind, dict[str, Any]]:
    if path.suffix not in (".yaml", ".yml", ".json"):
        return Kind.ARGV, flags_of(_command(text, path))
    try:
        tree = read_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--declared {path}: {error}", param="declared") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"--declared {path}: it is no mapping", param="declared")
    if isinstance(tree.get("services"), dict):
        return Kind.COMPOSE, flags_of(_service_command(tree["services"], path, service))
    values: dict[str, Any] = {}
    for name, value in flattened(tree):
        if name in values:
            raise ConfigError(f"--declared {path}: {name} is declared twice", param="declared")
        values[name] = value
    return Kind.YAML, values


def flattened(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of every leaf; an empty mapping is a leaf too."""
    for key, value in tree.items():
        name = f"{prefix}{spelled(str(key))}"
        if isinstance(value, Mapping) and value:
            yield from flattened(value, f"{name}.")
        else:
            yield name, value


def flags_of(words: Sequence[str]) -> dict[str, Any]:
    """A command line as settings: `--a b`, `--a=b`, `--a 1 2 4`, `--no-a`, a JSON object flattened.
    The word after `serve` is the model. A flag given twice counts as it does to the servers: last.
    """
    values: dict[str, Any] = {}
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        if word == "serve" and i < len(words) and not _is_flag(words[i]):
            values["model"] = words[i]
        elif word == "-m" and re.search(r"python[\d.]*$", words[i - 2] if i > 1 else ""):
            i += 1  # Python's own: a module, no model
        elif _is_flag(word):
            flag, equals, given = word.partition("=")
            taken = [given] if equals else _operands(spelled(flag), words[i:])
            i += 0 if equals else len(taken)
            values.update(_setting(spelled(flag), taken))
    return values


def _operands(name: str, following: Sequence[str]) -> list[str]:
    if name.startswith(_SWITCHES):
        is_said = bool(following) and following[0].lower() in ("true", "false")
        return list(following[:1]) if is_said else []
    taken: list[str] = []
    for word in following:
        if _is_flag(word):
            break
        taken.append(word)
    return taken


def _setting(name: str, taken: list[str]) -> Iterator[tuple[str, Any]]:
    if not taken:
        is_negated = name.startswith("no_")
        yield name.removeprefix("no_"), not is_negated
    elif len(taken) > 1:
        yield name, taken
    elif taken[0].startswith("{"):
        yield from flattened(_json_object(name, taken[0]), f"{name}.")
    else:
        yield name, taken[0]


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--{name}: {error}: {text}", param="declared") from error
    assert isinstance(value, dict)  # it began with a brace
    return value


def _is_flag(word: str) -> bool:
    return bool(re.match(r"--?[A-Za-z]", word))


def _command(text: str, path: Path) -> list[str]:
    """The one command of a script that starts a server."""
    lines = re.sub(r"\\\n", " ", text).splitlines()
    commands = [line for line in lines if not line.lstrip().startswith("#")]
    found = [line for line in commands if _LAUNCHERS.search(line)]
    found = found or [line for line in commands if re.search(r"(?:^|\s)--[a-z]", line)]
    if len(found) != 1:
        raise ConfigError(
            f"--declared {path}: {len(found)} commands start a server in it, one is wanted",
            param="declared",
        )
    try:
        return shlex.split(found[0], comments=True)
    except ValueError as error:
        raise ConfigError(f"--declared {path}: {error}", param="declared") from error


def _service_command(services: Mapping[str, Any], path: Path, service: str | None) -> list[str]:
    commands = {
        name: _words(body.get("entrypoint")) + _words(body.get("command"))
        for name, body in services.items()
        if isinstance(body, Mapping)
    }
    wanted = [name for name, words in commands.items() if words] if service is None else [service]
    if len(wanted) != 1 or not commands.get(wanted[0]):
        names = ", ".join(name for name, words in commands.items() if words) or "none"
        raise ConfigError(
            f"--declared {path}: choose the service with --service; with a command: {names}",
            param="service",
        )
    return commands[wanted[0]]


def _words(command: Any) -> list[str]:
    """A compose command: one text or a list of words."""
    if command is None:
        return []
    return shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
