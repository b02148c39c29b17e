"""Declared settings against effective ones, and the settings of two servers against each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from draftmark.bench.declared.files import Declared, Kind, flags_of, flattened
from draftmark.bench.declared.names import is_known, is_same, settled
from draftmark.bench.result import Drift, DriftState, ServerState

# Parts of what a server tells that describe a start or a machine, and are no settings.
_NO_SETTINGS = ("ready", "file", "internal_states", "argv", "system_env", "vllm_env", "version")
# Copies of settings for the drafting model, under the names of the served one's.
_OF_THE_DRAFT = ("draft_model_config", "draft_parallel_config", "target_model_config")


class Difference(msgspec.Struct, frozen=True):
    """A setting that two servers do not share. None where one of them does not tell."""

    key: str
    a: Any
    b: Any


def drift(declared: Declared, state: ServerState) -> list[Drift]:
    """The file, one row a declared setting, then what nobody declared.

    A setting that only the server's command line confirms is told as such: a command line says
    what was asked for. Raises nothing: a server that tells nothing gives rows of `missing`.
    """
    config = state.config or {}
    effective = by_setting(config)
    asked = by_setting(flags_of(config["argv"])) if "argv" in config else {}
    rows = list(_file_rows(declared, config))
    names: set[str] = set()
    for key, value in declared.values.items():
        name, wanted = settled(key, value)
        names.add(name)
        rows.append(_row(key, wanted, effective.get(name, {}), asked.get(name, {})))
    rows += [
        Drift(key=key, state=DriftState.IMPLICIT, effective=value)
        for name, found in sorted(effective.items())
        if name not in names
        for key, value in found.items()
        if is_known(key) or _has_source(config, key)
    ]
    return rows


def differences(a: ServerState, b: ServerState) -> list[Difference]:
    """Settings of `a` and `b` that are not the same, by the one name of each."""
    ours, theirs = by_setting(a.config or {}), by_setting(b.config or {})
    rows = []
    for name in sorted(ours.keys() | theirs.keys()):
        one, other = _one_value(ours.get(name, {})), _one_value(theirs.get(name, {}))
        if one is None and other is None:
            continue
        if one is None or other is None or not is_same(one, other):
            rows.append(Difference(name, one, other))
    return rows


def by_setting(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Setting -> {where the server tells it: the plain value}. What is null is left out where the
    server tells the setting elsewhere too."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in effective_values(config):
        name, plain_value = settled(key, value)
        found.setdefault(name, {})[key] = plain_value
    for values in found.values():
        for key in [key for key, value in values.items() if value is None]:
            if len(values) > 1:
                del values[key]
    return found


def effective_values(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of every setting; a value that comes with its source is a leaf."""
    left_out = {*_NO_SETTINGS, *_OF_THE_DRAFT}
    for key, value in flattened(_bare(config)):
        if not left_out & set(key.split(".")):
            yield key, value


def _bare(tree: Mapping[str, Any]) -> dict[str, Any]:
    """`tree` with the values alone where they come with their sources."""
    return {
        key: value["value"]
        if _is_sourced(value)
        else _bare(value)
        if isinstance(value, Mapping)
        else value
        for key, value in tree.items()
    }


def _is_sourced(value: Any) -> bool:
    return isinstance(value, Mapping) and {"value", "source"} <= value.keys()


def _has_source(config: Mapping[str, Any], key: str) -> bool:
    section, _, name = key.partition(".")
    inner = config.get(section)
    return isinstance(inner, Mapping) and _is_sourced(inner.get(name))


def _row(key: str, wanted: Any, found: dict[str, Any], asked: dict[str, Any]) -> Drift:
    if not found and asked:
        value = _one_value(asked)
        state = DriftState.EQUAL if is_same(wanted, value) else DriftState.DIFFERS
        return Drift(
            key=key, state=state, declared=wanted, effective=f"{value} (by its command line)"
        )
    if not found:
        return Drift(key=key, state=DriftState.MISSING, declared=wanted)
    is_equal = all(is_same(wanted, value) for value in found.values())
    return Drift(
        key=key,
        state=DriftState.EQUAL if is_equal else DriftState.DIFFERS,
        declared=wanted,
        effective=_one_value(found),
    )


def _one_value(found: Mapping[str, Any]) -> Any:
    """The value, or by place where places disagree."""
    values = list(found.values())
    if not values:
        return None
    agree = all(is_same(values[0], value) and is_same(value, values[0]) for value in values)
    return values[0] if agree else dict(found)


def _file_rows(declared: Declared, config: Mapping[str, Any]) -> Iterator[Drift]:
    """Whether the server read this very file, of a server that tells which one it read. Missing
    where it read none."""
    if declared.kind is not Kind.YAML or "file" not in config:
        return
    read = config["file"] or {}
    state = DriftState.MISSING
    if read:
        is_same_file = read.get("sha256") == declared.sha256
        state = DriftState.EQUAL if is_same_file else DriftState.DIFFERS
    yield Drift(
        key="file",
        state=state,
        declared=f"{declared.path} (sha256 {declared.sha256})",
        effective=f"{read['path']} (sha256 {read['sha256']})" if read else None,
    )
