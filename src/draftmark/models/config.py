"""From a model directory to a `Description`: facts for everybody, configuration for the stage.

The architecture is refused by name before transformers is asked, so that the message is ours and
lists what is built.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from draftmark.core.errors import CheckpointError, ModelError
from draftmark.core.start import ModelFacts
from draftmark.layers.decoder import DecoderConfig
from draftmark.models import llama, qwen3, qwen3_5
from draftmark.models.family import Names

_FAMILIES: Mapping[str, ModuleType] = {
    model_type: family for family in (llama, qwen3, qwen3_5) for model_type in family.ARCHITECTURES
}
# Known, and none of them a variant of what is built.
_PLANNED = ("qwen3_moe", "glm_moe_dsa", "glm5_next", "qwen4_exp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A model directory as understood; `names` says what its tensors are called."""

    facts: ModelFacts
    config: DecoderConfig
    names: Names


def describe(model_dir: Path) -> Description:
    """Read everything but the weights. Raises `ModelError` or `CheckpointError` in one line."""
    raw = _read_json(model_dir / "config.json")
    model_type, family = _family(raw)
    _require_tokenizer(model_dir)
    entries = _entries(model_dir)
    try:
        config = family.read(raw, present=entries)
    except (ValueError, KeyError, TypeError) as error:
        path = model_dir / "config.json"
        raise ModelError(f"{path} is not a {model_type} configuration: {error}") from error
    num_parameters, num_bytes, dtype = _measure(entries, model_dir)
    facts = ModelFacts(
        model_type=model_type,
        architecture=_architecture(raw, family),
        num_layers=config.num_layers,
        vocab_size=config.vocab_size,
        max_context=config.max_context,
        dtype=dtype,
        eos_ids=_eos_ids(raw, model_dir),
        num_parameters=num_parameters,
        checkpoint_bytes=num_bytes,
        layer_kinds=config.kind_of_layers,
        has_mtp=config.mtp is not None,
    )
    return Description(facts=facts, config=config, names=family.names(config, present=entries))


def weight_files(model_dir: Path) -> list[Path]:
    """The safetensors files of a checkpoint, in a fixed order. Raises `CheckpointError`."""
    single, index = model_dir / "model.safetensors", model_dir / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    if not index.is_file():
        found = ", ".join(sorted(p.name for p in model_dir.glob("*") if p.is_file())[:8])
        raise CheckpointError(
            f"{model_dir} has no model.safetensors and no model.safetensors.index.json "
            f"(it has: {found or 'nothing'})"
        )
    weight_map = _read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index} has no weight_map")
    files = [model_dir / name for name in sorted(set(weight_map.values()))]
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        raise CheckpointError(f"{model_dir} lacks {', '.join(missing)}, named in {index.name}")
    return files


def read_header(path: Path) -> dict[str, dict[str, Any]]:
    """Tensor name -> dtype, shape and data_offsets of a safetensors file.

    Raises `CheckpointError` when the file is not one, or shorter than its header says.
    """
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            size = path.stat().st_size
            if length > size - 8:
                raise CheckpointError(f"{path} is truncated: its header does not fit in it")
            header = json.loads(file.read(length))
    except (struct.error, ValueError) as error:
        raise CheckpointError(f"{path} is not a safetensors file: {error}") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    header.pop("__metadata__", None)
    end = 8 + length + max((entry["data_offsets"][1] for entry in header.values()), default=0)
    if size != end:
        raise CheckpointError(f"{path} is truncated or corrupt: {size} bytes instead of {end}")
    return dict(header)


def _family(raw: Mapping[str, Any]) -> tuple[str, ModuleType]:
    model_type = str(raw.get("model_type"))
    architectures = raw.get("architectures") or []
    built = ", ".join(_FAMILIES)
    if model_type not in _FAMILIES:
        state = "is not built yet" if model_type in _PLANNED else "is not supported"
        shown = f"{model_type} ({', '.join(architectures) or 'no architecture named'})"
        raise ModelError(f"model type {shown} {state}; built: {built}")
    family = _FAMILIES[model_type]
    own = family.ARCHITECTURES[model_type]
    if architectures and not (len(architectures) == 1 and architectures[0] in own):
        raise ModelError(
            f"architecture {', '.join(architectures)} of {model_type} is not built; built: "
            f"{', '.join(own)}"
        )
    return model_type, family


def _architecture(raw: Mapping[str, Any], family: ModuleType) -> str:
    """As named, else the first of the model type."""
    named: list[str] = raw.get("architectures") or []
    return named[0] if named else str(family.ARCHITECTURES[str(raw["model_type"])][0])


def _measure(entries: Mapping[str, dict[str, Any]], model_dir: Path) -> tuple[int, int, str]:
    """(parameters, bytes, torch name of the dtype most bytes have) from the files' headers."""
    num_parameters = 0
    by_dtype: dict[str, int] = {}
    for entry in entries.values():
        count = 1
        for size in entry["shape"]:
            count *= size
        num_parameters += count
        first, last = entry["data_offsets"]
        by_dtype[entry["dtype"]] = by_dtype.get(entry["dtype"], 0) + last - first
    if not by_dtype:
        raise CheckpointError(f"{model_dir} holds no tensors")
    most = max(by_dtype, key=by_dtype.__getitem__)
    return num_parameters, sum(by_dtype.values()), _TORCH_NAMES.get(most, most)


_TORCH_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def _entries(model_dir: Path) -> dict[str, dict[str, Any]]:
    """What the files say of each tensor."""
    found: dict[str, dict[str, Any]] = {}
    for path in weight_files(model_dir):
        found |= read_header(path)
    return found


def _eos_ids(raw: Mapping[str, Any], model_dir: Path) -> tuple[int, ...]:
    """Union of config.json's and generation_config.json's, in that order."""
    sources = [raw, raw.get("text_config") or {}]
    generation = model_dir / "generation_config.json"
    if generation.is_file():
        sources.append(_read_json(generation))
    ids: list[int] = []
    for source in sources:
        given = source.get("eos_token_id")
        if given is not None:
            ids += given if isinstance(given, list) else [given]
    return tuple(dict.fromkeys(ids))


def _require_tokenizer(model_dir: Path) -> None:
    if not (model_dir / "tokenizer.json").is_file():
        raise ModelError(f"{model_dir} has no tokenizer.json")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(f"{path.parent} has no {path.name}") from error
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} is not a JSON object")
    return value
