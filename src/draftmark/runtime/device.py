"""The device as found, and a short probe of which number format it runs fastest."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from draftmark.core.errors import ConfigError
from draftmark.core.start import DeviceFacts
from draftmark.kernels import backends, linear
from draftmark.models.config import read_header, weight_files
from draftmark.parallel.host_peer import can_share_memory
from draftmark.runtime.memory import free_bytes, total_bytes

PROBED_DTYPES = (torch.bfloat16, torch.float32)

# Square weights of a decode-shaped product: together larger than most second-level caches, small
# enough that the probe is over in a tenth of a second.
_PROBE_SIZE = 1536
_PROBE_WEIGHTS = 6
_PROBE_REPEATS = 8


def find_device(wanted: str | None, *, index: int = 0, wanted_count: int = 1) -> torch.device:
    """`cpu`, `cuda` or None for the better one; the `index`-th GPU of `wanted_count` that the
    workers of this machine need. Raises `ConfigError` for what is not there."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: torch finds no CUDA device", param="device")
    if wanted == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if wanted_count > count:
        raise ConfigError(
            f"{wanted_count} workers need a GPU each, this machine has {count}: lower --tp or "
            "--pp, or raise --stages-per-worker",
            param="pp",
        )
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device


def usable_threads() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe_device(
    device: torch.device, *, threads: int, probed: Sequence[torch.dtype]
) -> DeviceFacts:
    """Facts about `device`; `probed` formats are timed on a CPU."""
    probe_ms = {}
    if device.type == "cpu":
        torch.set_num_threads(threads)
        probe_ms = {name_of(dtype): probe(dtype) for dtype in probed}
    return DeviceFacts(
        kind=device.type,
        name=torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name(),
        domain=f"{platform.node()} {device}",
        total_bytes=total_bytes(device),
        free_bytes=free_bytes(device),
        threads=threads,
        probe_ms=probe_ms,
        shares_memory=device.type == "cpu" and can_share_memory(),
    )


def find_versions(model_dir: Path) -> dict[str, str]:
    """What must be the same on all workers, or they would not compute the same thing."""
    return {
        "source": _source_digest(),
        "torch": str(torch.__version__),
        "checkpoint": _digest(model_dir / "config.json", *_weight_headers(model_dir)),
    }


def _source_digest() -> str:
    """Of every module of ours: a version number would not tell two checkouts apart."""
    return _digest(*sorted(Path(__file__).parents[1].rglob("*.py")))


def _digest(*parts: Path | bytes) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(part.read_bytes() if isinstance(part, Path) else part)
    return total.hexdigest()[:12]


def _weight_headers(model_dir: Path) -> list[bytes]:
    """Names, shapes and places of all tensors."""
    return [
        json.dumps(read_header(path), sort_keys=True).encode() for path in weight_files(model_dir)
    ]


def name_of(dtype: torch.dtype) -> str:
    """`bfloat16` for torch.bfloat16."""
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    """The inverse. Raises `ConfigError` for what is no floating-point format."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ConfigError(f"--dtype {name} is no floating-point format", param="dtype")
    return dtype


@torch.inference_mode()
def probe(dtype: torch.dtype) -> float:
    """Milliseconds of a product of one row with one of the probe's weights, the best of all."""
    device = torch.device("cpu")
    backend = backends.choose(device, dtype=dtype).linear
    shape = (_PROBE_SIZE, _PROBE_SIZE)
    weights = [
        linear.prepare(torch.full(shape, 0.01, dtype=dtype), backend=backend)
        for _ in range(_PROBE_WEIGHTS)
    ]
    x = torch.full((1, _PROBE_SIZE), 0.01, dtype=dtype)
    best = float("inf")
    for weight in _PROBE_REPEATS * weights:
        began = time.perf_counter()
        linear.linear(x, weight, backend=backend)
        # The best single product: a busy neighbour stalls most of them, not all.
        best = min(best, time.perf_counter() - began)
    return round(best * 1e3, 4)


def cpu_name() -> str:
    """The processor's name as the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
