"""`Declared` and `Resolved`: the configuration with where each value came from.

`Resolved.record()` is what `/v1/engine/config` shows, `to_yaml` what it gives for `--config`.
Neither object is ever changed, only replaced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, TypeVar, get_type_hints

import msgspec

from draftmark.core.config import Config
from draftmark.core.config_file import FileRecord, read_tree, write_tree, write_yaml
from draftmark.core.options import options_by_name

SourceKind = Literal["default", "file", "flag", "model", "measured", "device"]
_Value = TypeVar("_Value")


class Source(msgspec.Struct, frozen=True):
    """Where a value came from; `note` is one line of why."""

    kind: SourceKind
    note: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.note}" if self.note else self.kind


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """The tree as asked for. `sources` by key (`model.dtype`); `file` is the one that was read."""

    config: Config
    sources: dict[str, Source]
    file: FileRecord | None = None


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The tree as it runs. None is left only where it means "none" (no key file, no recording).

    `kv_pool_tokens` stays None until the memory budget sets it through `with_value`, and so does
    `snapshots`, which stays None for a model without recurrent layers.
    """

    config: Config
    sources: dict[str, Source]
    file: FileRecord | None = None

    def with_value(
        self, name: str, value: object, *, kind: SourceKind = "measured", note: str = ""
    ) -> Resolved:
        """A copy with the field `name` set, and why."""
        key = options_by_name()[name].key
        return Resolved(
            config=replace_values(self.config, {key: value}),
            sources={**self.sources, key: Source(kind, note)},
            file=self.file,
        )

    def record(self) -> dict[str, object]:
        """{config: {section: {field: {value, source, note}}}, file: {path, sha256} or None}."""
        tree = write_tree(self.config)
        fields = {
            section: {
                name: self._entry(f"{section}.{name}", value) for name, value in items.items()
            }
            for section, items in tree.items()
        }
        return {"config": fields, "file": msgspec.to_builtins(self.file)}

    def _entry(self, key: str, value: object) -> dict[str, object]:
        source = self.sources[key]
        return {"value": value, "source": source.kind, "note": source.note}

    @property
    def dtype(self) -> str:
        return _settled(self.config.model.dtype)

    @property
    def kv_dtype(self) -> str:
        return _settled(self.config.model.kv_dtype)

    @property
    def max_context(self) -> int:
        return _settled(self.config.model.max_context)

    @property
    def memory_fraction(self) -> float:
        return _settled(self.config.memory.memory_fraction)

    @property
    def state_slots(self) -> int:
        return _settled(self.config.memory.state_slots)

    @property
    def max_running(self) -> int:
        return _settled(self.config.schedule.max_running)

    @property
    def prefill_tokens(self) -> int:
        return _settled(self.config.schedule.prefill_tokens)

    @property
    def draft_tokens(self) -> int:
        return _settled(self.config.speculation.draft_tokens)

    @property
    def adapts_drafts(self) -> bool:
        """Whether steps make as many drafts as pay, up to `draft_tokens`, or always so many."""
        return self.draft_tokens > 0 and self.sources[_DRAFT_TOKENS].kind == "default"

    @property
    def device(self) -> str:
        return _settled(self.config.parallel.device)

    @property
    def threads(self) -> int:
        return _settled(self.config.parallel.threads)


_DRAFT_TOKENS = "speculation.draft_tokens"


def _settled(value: _Value | None) -> _Value:
    assert value is not None, "resolve() leaves no auto here"
    return value


def replace_values(config: Config, values: Mapping[str, object]) -> Config:
    """`config` with the fields named by key replaced."""
    sections = {}
    for section in get_type_hints(Config):
        changed = {
            key.partition(".")[2]: value
            for key, value in values.items()
            if key.partition(".")[0] == section
        }
        sections[section] = dataclasses.replace(getattr(config, section), **changed)
    return Config(**sections)


def resolved_from_record(record: Mapping[str, object]) -> Resolved:
    """The inverse of `Resolved.record`, for a process that got the record as JSON."""
    fields = msgspec.convert(record["config"], dict[str, dict[str, dict[str, object]]])
    tree = {
        section: {name: entry["value"] for name, entry in items.items()}
        for section, items in fields.items()
    }
    sources = {
        f"{section}.{name}": msgspec.convert(
            {"kind": entry["source"], "note": entry["note"]}, Source
        )
        for section, items in fields.items()
        for name, entry in items.items()
    }
    file = msgspec.convert(record["file"], FileRecord | None)
    return Resolved(config=replace_values(Config(), read_tree(tree)), sources=sources, file=file)


def to_yaml(resolved: Resolved | Declared) -> str:
    """A file for `--config` that starts the same server; sources are its comments.

    A pool size that the budget computed is written out and `memory_fraction` then left to auto: the
    share of today's free memory must not refuse tomorrow's start. A number of drafts that was left
    to the engine stays so.
    """
    config = resolved.config
    computed = resolved.sources["memory.kv_pool_tokens"].kind == "measured"
    chosen = resolved.sources["memory.memory_fraction"].kind == "device"
    if config.memory.kv_pool_tokens is not None and (computed or chosen):
        config = replace_values(config, {"memory.memory_fraction": None})
    if resolved.sources[_DRAFT_TOKENS].kind == "default":
        config = replace_values(config, {_DRAFT_TOKENS: None})
    header = ["draftmark configuration; feed it back with --config FILE"]
    if resolved.file is not None:
        header.append(f"read from {resolved.file.path} (sha256 {resolved.file.sha256})")
    comments = {key: str(source) for key, source in resolved.sources.items()}
    return write_yaml(config, comments=comments, header=header)
