"""Converts a .gguf file to a Hugging Face directory: `python -m draftmark.models.gguf SRC DST`.

Weights are dequantised to bf16 one tensor at a time and streamed into one safetensors file. All is
written beside DST and renamed into place at the end: DST is whole or not there. Progress goes to
stdout as JSON lines (phase, done, total); a fault is one line on stderr and exit status 1.
Needs no torch.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from gguf import GGUFReader, ReaderTensor
from gguf.quants import dequantize

from draftmark.core.errors import ModelError
from draftmark.models import gguf_metadata as names
from draftmark.models.gguf_tokenizer import tokenizer_config, tokenizer_json

Progress = Callable[[str, int, int], None]

_ROUNDING = np.uint32(0x7FFF)


def convert(
    source: Path, target: Path, *, generation: Mapping[str, Any], progress: Progress
) -> None:
    """Write `target` from `source`. Raises `ModelError`; a finished `target` is left as it is."""
    progress("read", 0, 1)
    reader = _read(source)
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    factors = tensors.pop(names.ROPE_FACTORS, None)
    documents = {
        "config.json": names.hf_config(
            metadata,
            tensors=frozenset(tensors),
            rope_factors=None if factors is None else _values(factors).reshape(-1),
        ),
        "generation_config.json": names.generation_config(metadata, generation),
        "tokenizer.json": tokenizer_json(metadata),
        "tokenizer_config.json": tokenizer_config(metadata),
    }
    _require_space(target.parent, 2 * sum(int(tensor.n_elements) for tensor in tensors.values()))
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        for name, document in documents.items():
            (scratch / name).write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
        with (scratch / "model.safetensors").open("wb") as file:
            _write_tensors(file, tensors, metadata, progress)
            file.flush()
            os.fsync(file.fileno())
        _publish(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    progress("done", 1, 1)


def _read(source: Path) -> GGUFReader:
    try:
        return GGUFReader(source)
    except OSError as error:
        raise ModelError(f"{source} cannot be read: {error}") from error
    except (ValueError, KeyError, IndexError, OverflowError, UnicodeDecodeError) as error:
        raise ModelError(f"{source} is not a whole GGUF file: {error}") from error


def _write_tensors(
    file: BinaryIO,
    tensors: Mapping[str, ReaderTensor],
    metadata: Mapping[str, Any],
    progress: Progress,
) -> None:
    """A safetensors file: header length, header, then the tensors in the header's order."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    total = 0
    for name, tensor in tensors.items():
        num_bytes = 2 * int(tensor.n_elements)
        header[names.hf_name(name)] = {
            "dtype": "BF16",
            # GGUF lists the fastest dimension first.
            "shape": [int(size) for size in reversed(tensor.shape)],
            "data_offsets": [total, total + num_bytes],
        }
        total += num_bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    done = 0
    for name, tensor in tensors.items():
        values = _values(tensor)
        heads = names.permuted_heads(name, metadata)
        if heads:
            values = names.unpermute(values, heads, tensor=name)
        done += file.write(_to_bf16(values, name).tobytes())
        progress("weights", done, total)


def _values(tensor: ReaderTensor) -> np.ndarray:
    """[shape] float32."""
    values = dequantize(tensor.data, tensor.tensor_type)
    return values.reshape([int(size) for size in reversed(tensor.shape)])


def _to_bf16(values: np.ndarray, name: str) -> np.ndarray:
    """The upper halves of float32, rounded to nearest, ties to even; refuses non-finite values."""
    if not np.isfinite(values).all():
        raise ModelError(f"the GGUF file's tensor {name} has non-finite values")
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    bits = bits + _ROUNDING + ((bits >> np.uint32(16)) & np.uint32(1))
    return (bits >> np.uint32(16)).astype(np.uint16)


def _require_space(folder: Path, num_bytes: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise ModelError(
            f"converting needs {num_bytes / 1e9:.2f} GB in {folder}, {free / 1e9:.2f} GB are free"
        )


def _publish(scratch: Path, target: Path) -> None:
    """Rename into place. Somebody else may have done the same work first: theirs stays."""
    try:
        scratch.rename(target)
    except OSError:
        if not (target / "model.safetensors").is_file():
            raise


def main() -> int:
    parser = argparse.ArgumentParser(prog="draftmark.models.gguf", description=__doc__)
    parser.add_argument("source", type=Path, help="the .gguf file")
    parser.add_argument("target", type=Path, help="the directory to make")
    parser.add_argument(
        "--generation-config",
        type=json.loads,
        default={},
        metavar="JSON",
        help="fields to add to generation_config.json",
    )
    options = parser.parse_args()

    def progress(phase: str, done: int, total: int) -> None:
        print(json.dumps({"phase": phase, "done": done, "total": total}), flush=True)

    try:
        convert(
            options.source,
            options.target,
            generation=options.generation_config,
            progress=progress,
        )
    except ModelError as error:
        print(error.message, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"converting {options.source} failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
