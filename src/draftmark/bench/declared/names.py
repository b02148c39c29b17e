"""One setting under its many names, and one value in its many spellings."""

from __future__ import annotations

import math
import re
from typing import Any

# What a setting is called here, and elsewhere.
_ALIASES: dict[str, tuple[str, ...]] = {
    "model": ("model_path", "m", "hf_repo"),
    "tokenizer": ("tokenizer_path",),
    "served_model_name": ("alias",),
    "max_context": (
        "max_model_len",
        "max_seq_len",
        "max_model_length",
        "context_length",
        "context_len",
        "ctx_size",
        "c",
    ),
    "kv_dtype": ("kv_cache_dtype", "cache_dtype", "cache_type_k"),
    "memory_fraction": ("gpu_memory_utilization", "mem_fraction_static"),
    "kv_pool_tokens": ("max_total_tokens", "max_total_num_tokens"),
    "page_size": ("block_size",),
    "max_running": ("max_num_seqs", "max_running_requests", "parallel", "np"),
    "max_queue": ("max_queued_requests",),
    "prefill_tokens": ("max_num_batched_tokens", "chunked_prefill_size"),
    "tp": ("tensor_parallel_size", "tp_size"),
    "pp": ("pipeline_parallel_size", "pp_size"),
    "dp": ("data_parallel_size", "dp_size"),
    "seed": ("random_seed",),
    "state_slots": ("max_mamba_cache_size",),
    "draft_model": ("speculative_config.model", "speculative_draft_model_path", "model_draft"),
    "draft": ("speculative_config.method", "speculative_algorithm", "speculative_algo"),
    "draft_tokens": (
        "speculative_config.num_speculative_tokens",
        "num_speculative_tokens",
        "speculative_num_draft_tokens",
        "draft_max",
        "spec_draft_n_max",
    ),
    "graph_rows": ("cudagraph_capture_sizes", "cuda_graph_sizes", "cuda_graph_bs"),
    "no_graphs": ("enforce_eager", "disable_cuda_graph"),
    "prefix_cache": ("enable_prefix_caching",),
    "no_prefix_cache": ("disable_radix_cache",),
    "tool_parser": ("tool_call_parser",),
    "step_timeout_s": ("watchdog_timeout",),
}
_BY_ALIAS = {alias: name for name, aliases in _ALIASES.items() for alias in (name, *aliases)}
# Said of the opposite: `disable_radix_cache: true` is `prefix_cache: false`.
_NEGATED = {"no_prefix_cache": "prefix_cache"}
_BOOLS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_SAME_VALUES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float": "float32",
}
# vLLM's: small letters are powers of ten, capitals of two.
_SCALES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
_SCALED = re.compile(r"(\d+(?:\.\d+)?)([kmgKMG])")


def spelled(key: str) -> str:
    """`--Max-Model-Len` as `max_model_len`."""
    return key.strip().lstrip("-").replace("-", "_").lower()


def canonical(key: str) -> str:
    """The one name of a setting, by the longest end of its dotted path that is known, else its
    last part."""
    parts = spelled(key).split(".")
    for start in range(len(parts)):
        if name := _BY_ALIAS.get(".".join(parts[start:])):
            return name
    return parts[-1]


def is_known(key: str) -> bool:
    return canonical(key) in _BY_ALIAS


def settled(key: str, value: Any) -> tuple[str, Any]:
    """The setting's one name, and its value with negations undone."""
    name, plain_value = canonical(key), plain(value)
    if name in _NEGATED and isinstance(plain_value, bool):
        return _NEGATED[name], not plain_value
    return name, plain_value


def plain(value: Any) -> Any:
    """A value as what it says: `"0.90"` as 0.9, `"1,2"` as [1, 2], `bf16` as bfloat16."""
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.lower() in ("", "none", "null", "auto"):
        return None
    if text.lower() in _BOOLS:
        return _BOOLS[text.lower()]
    if re.fullmatch(r"[-+]?\d+", text):
        return int(text)
    if re.fullmatch(r"[-+]?\d*\.?\d+(?:[eE][-+]?\d+)?", text):
        return float(text)
    if scaled := _SCALED.fullmatch(text):
        return round(float(scaled[1]) * _SCALES[scaled[2]])
    if re.fullmatch(r"[\w.+-]+(?:,[\w.+-]+)+", text):
        return [plain(part) for part in text.split(",")]
    word = text.removeprefix("torch.")
    return _SAME_VALUES.get(word.lower(), word)


def is_same(declared: Any, effective: Any) -> bool:
    """Of plain values. A declared "auto" is whatever the server chose."""
    if declared is None:
        return True
    if isinstance(declared, bool) or isinstance(effective, bool):
        return declared is effective
    if isinstance(declared, int | float) and isinstance(effective, int | float):
        return math.isclose(declared, effective, rel_tol=1e-9)
    if isinstance(declared, list) and isinstance(effective, list):
        return len(declared) == len(effective) and all(map(is_same, declared, effective))
    if isinstance(declared, list) != isinstance(effective, list):
        one = declared if isinstance(declared, list) else effective
        other = effective if isinstance(declared, list) else declared
        return len(one) == 1 and is_same(one[0], other)
    return bool(declared == effective)
