"""Which implementation of each op runs: chosen once at start, passed in, reported, never changed.

`reference` is the judge: plain, slow, right on any device in any dtype. `torch` is fast plain
torch. `onednn` (linear and experts) holds the weights in oneDNN's blocked layout. `numba` is
compiled, for what torch takes many calls for.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from importlib.util import find_spec

import torch

from draftmark.kernels.linear.strips import has_strips


@dataclass(frozen=True, slots=True, kw_only=True)
class Backends:
    """Backend name by op."""

    attention: str = "torch"
    attention_rows: str = "torch"
    causal_conv: str = "torch"
    delta_rows: str = "torch"
    experts: str = "torch"
    gated_delta: str = "torch"
    kv_write: str = "torch"
    linear: str = "torch"
    norm: str = "torch"
    rope: str = "torch"
    sample: str = "torch"
    sentinel: str = "torch"
    silu_mul: str = "torch"

    def report(self) -> dict[str, str]:
        return asdict(self)


# But for the sampler, whose reference is too slow for whole runs and judges them from outside.
REFERENCE = replace(
    Backends(**{op.name: "reference" for op in fields(Backends)}), sample=Backends().sample
)

_COMPILED = (
    "attention_rows",
    "causal_conv",
    "delta_rows",
    "experts",
    "gated_delta",
    "norm",
    "sample",
    "sentinel",
)
_PACKED = ("experts", "linear")


def available(op: str, *, device: torch.device, dtype: torch.dtype) -> tuple[str, ...]:
    """Backends of `op` that can run here, fastest first. Raises ValueError for an unknown op."""
    if op not in {f.name for f in fields(Backends)}:
        raise ValueError(f"there is no op {op!r}")
    packed = ("onednn",) if op in _PACKED and _has_onednn(device, dtype) else ()
    compiled = ("numba",) if op in _COMPILED and has_numba(device, dtype) else ()
    if op == "linear" and packed and has_numba(device, dtype) and has_strips(dtype):
        compiled = ("numba",)
    return (*compiled, *packed, "torch", "reference")


def choose(
    device: torch.device, *, dtype: torch.dtype, named: Mapping[str, str] | None = None
) -> Backends:
    """The fastest available backend of every op, or the one `named` for it.

    Raises ValueError when a named backend is not available: nothing falls back unseen.
    """
    chosen = {op.name: available(op.name, device=device, dtype=dtype)[0] for op in fields(Backends)}
    for op, backend in (named or {}).items():
        usable = available(op, device=device, dtype=dtype)
        if backend not in usable:
            raise ValueError(
                f"backend {backend!r} of {op} is not available on {device.type} in {dtype}; "
                f"available: {', '.join(usable)}"
            )
        chosen[op] = backend
    return Backends(**chosen)


def has_numba(device: torch.device, dtype: torch.dtype) -> bool:
    """Compiled kernels share torch's OpenMP team, which has other names elsewhere."""
    if device.type != "cpu" or dtype not in (torch.bfloat16, torch.float32):
        return False
    has_team = sys.platform == "linux" and hasattr(ctypes.CDLL(torch._C.__file__), "GOMP_parallel")
    return has_team and find_spec("numba") is not None


def _has_onednn(device: torch.device, dtype: torch.dtype) -> bool:
    """fp32 is left out: MKL on plain weights is the faster one at one row."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if dtype == torch.float16:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    return False
