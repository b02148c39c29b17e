"""What a model directory says about sampling: defaults with their source, and which ids end.

A default fills only what a request leaves out. `generation_config.json` and `config.json` are both
asked for end-of-sequence ids and the union counts: chat models often name the end of a turn in one
and the end of a text in the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftmark.core.errors import ModelError, RequestError
from draftmark.core.request import SamplingParams

GENERATION_CONFIG = "generation_config.json"
# The fields of `SamplingParams` that a model may have an opinion on.
SAMPLING_FIELDS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")

_Number = int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDefaults:
    """`sampling` has an entry for each of `SAMPLING_FIELDS`; `sources` says where it came from."""

    sampling: Mapping[str, _Number]
    sources: Mapping[str, str]
    eos_ids: tuple[int, ...] = ()

    def record(self) -> dict[str, dict[str, _Number | str]]:
        """{field: {value, source}}, as shown to people."""
        return {
            name: {"value": value, "source": self.sources[name]}
            for name, value in self.sampling.items()
        }


@dataclass(frozen=True, slots=True)
class OwnDefaults:
    """Defaults of ours for a model whose files say nothing good; they go before the files."""

    sampling: Mapping[str, _Number] = field(default_factory=dict)
    source: str = "built-in model"


def read_generation(model_dir: Path, *, own: OwnDefaults | None = None) -> GenerationDefaults:
    """Read a model directory. Raises `ModelError` naming the file for what cannot be right."""
    generation = _read(model_dir / GENERATION_CONFIG)
    config = _read(model_dir / "config.json")
    fallback = SamplingParams()
    sampling: dict[str, _Number] = {name: getattr(fallback, name) for name in SAMPLING_FIELDS}
    sources = dict.fromkeys(SAMPLING_FIELDS, "default")
    for values, source in (
        (generation, GENERATION_CONFIG),
        (own.sampling if own else {}, own.source if own else ""),
    ):
        for name in SAMPLING_FIELDS:
            if values.get(name) is not None:
                sampling[name] = _check(name, values[name], source=source)
                sources[name] = source
    eos = {
        *_ids(generation.get("eos_token_id"), source=GENERATION_CONFIG),
        *_ids(config.get("eos_token_id"), source="config.json"),
        *_ids((config.get("text_config") or {}).get("eos_token_id"), source="config.json"),
    }
    return GenerationDefaults(sampling=sampling, sources=sources, eos_ids=tuple(sorted(eos)))


def _read(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty when there is no such file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {path}: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} must hold a JSON object, not {type(value).__name__}")
    return value


def _check(name: str, value: object, *, source: str) -> _Number:
    """The value, if a request with it would be valid."""
    wanted = int if name == "top_k" else (int, float)
    if isinstance(value, bool) or not isinstance(value, wanted):
        raise ModelError(f"{source}: {name} must be a number, got {value!r}")
    assert isinstance(value, int | float)
    try:
        SamplingParams(**{name: value}).validate(vocab_size=0)  # type: ignore[arg-type]
    except RequestError as error:
        raise ModelError(f"{source}: {error.message}") from error
    return value


def _ids(value: object, *, source: str) -> list[int]:
    ids: list[int] = []
    for token in value if isinstance(value, list) else [] if value is None else [value]:
        if isinstance(token, bool) or not isinstance(token, int):
            raise ModelError(
                f"{source}: eos_token_id must be an id or a list of ids, got {value!r}"
            )
        ids.append(token)
    return ids
