"""From what was declared to what runs: defaults < file < flags, then every `auto` gets a value.

    load_config(flags, file) -> Declared               read and checked
    check_built(config)                                refuses what is not built, by name
    resolve(declared, model, device) -> Resolved       no auto left but where None is a meaning
    resolved.with_value(...)                           what only the memory budget can know

The rules by which an auto is chosen are the functions at the end, one a field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from draftmark.core.config import Config
from draftmark.core.config_file import read_config_file, read_tree, write_tree
from draftmark.core.declared import (
    Declared,
    Resolved,
    Source,
    SourceKind,
    replace_values,
    resolved_from_record,
    to_yaml,
)
from draftmark.core.errors import ConfigError, NotBuilt
from draftmark.core.foreign_flags import explain
from draftmark.core.options import did_you_mean, options, options_by_name, read_value
from draftmark.core.start import DeviceFacts, ModelFacts
from draftmark.core.topology import ONE_WORKER_LANES, num_workers
from draftmark.core.validate import check_built, check_combinations

__all__ = [
    "Declared",
    "Resolved",
    "Source",
    "check_built",
    "from_dict",
    "load_config",
    "resolve",
    "resolved_from_record",
    "to_dict",
    "to_yaml",
]

# What auto means by kind of device.
_MEMORY_FRACTION = {"cpu": 0.5, "cuda": 0.9}
_MEMORY_FRACTION_WITH_POOL = 0.9
_MAX_RUNNING = {"cpu": 64, "cuda": 256}
_LANES_OF_DEVICE = {"nccl": "cuda", "gloo": "cpu"}
_LANES = {"cpu": "gloo", "cuda": "nccl"}
_PREFILL_TOKENS = {"cpu": 2048, "cuda": 4096}
# float16 overflows where models trained in bfloat16 do not, and float64 is for tests: neither is
# ever chosen for anybody, both may be asked for.
_PROBED_DTYPES = ("bfloat16", "float32")
# A busy machine disturbs the probe: two starts should not differ in their numbers for that.
_CLEARLY_FASTER = 1.25


def load_config(given: Mapping[str, object], file: Path | None = None) -> Declared:
    """Defaults, overlaid by `file`, overlaid by `given` (field name to text or plain value).

    Raises `ConfigError` naming the flag or the file's key; features not built are not yet refused
    here (`check_built`), so that a file may be read and shown anywhere.
    """
    values: dict[str, object] = {}
    sources = {option.key: Source("default") for option in options()}
    record = None
    if file is not None:
        values, record = read_config_file(file)
        sources |= {key: Source("file", record.path) for key in values}
    for name, value in given.items():
        option = options_by_name().get(name)
        if option is None:
            hint = did_you_mean(name, options_by_name())
            raise ConfigError(explain(name) or f"unknown option {name}{hint}", param=name)
        values[option.key] = read_value(option, value, where=option.flag)
        sources[option.key] = Source("flag")
    config = replace_values(Config(), values)
    check_combinations(config)
    return Declared(config=config, sources=sources, file=record)


def to_dict(config: Config) -> dict[str, dict[str, object]]:
    """Nested plain values: lists for tuples, None for auto."""
    return write_tree(config)


def from_dict(tree: Mapping[str, object]) -> Config:
    """The inverse of `to_dict`; what is left out has its default. Raises `ConfigError`."""
    return replace_values(Config(), read_tree(tree))


def resolve(declared: Declared, model: ModelFacts, device: DeviceFacts) -> Resolved:
    """Give every auto a value. Raises `ConfigError` for what this model or device cannot do."""
    check_combinations(declared.config)
    check_built(declared.config)
    resolved = Resolved(config=declared.config, sources=declared.sources, file=declared.file)
    for name, choose in _CHOICES.items():
        if _is_auto(resolved.config, name):
            value, kind, note = choose(resolved, model, device)
            resolved = resolved.with_value(name, value, kind=kind, note=note)
    _check_facts(resolved, model, device)
    check_combinations(resolved.config)
    return resolved


def stages_per_worker(config: Config) -> int:
    """Stages in each worker, known before any worker is started."""
    parallel = config.parallel
    if parallel.stages_per_worker is not None:
        return parallel.stages_per_worker
    return parallel.pp if parallel.lanes in ONE_WORKER_LANES else 1


def count_workers(config: Config) -> int:
    """Worker processes that a declared configuration wants."""
    parallel = config.parallel
    return num_workers(parallel.pp, tp=parallel.tp, stages_per_worker=stages_per_worker(config))


def _is_auto(config: Config, name: str) -> bool:
    return options_by_name()[name].value_in(config) in (None, ())


def _check_facts(resolved: Resolved, model: ModelFacts, device: DeviceFacts) -> None:
    """What was asked for explicitly must suit the model and the device that were found."""
    if resolved.device != device.kind:
        raise ConfigError(
            f"--device {resolved.device}: the device found is {device.name} ({device.kind})",
            param="device",
        )
    if resolved.max_context > model.max_context:
        raise ConfigError(
            f"--max-context {resolved.max_context} is above the model's own limit of "
            f"{model.max_context}",
            param="max_context",
        )
    _check_stages(resolved, model, device)
    if resolved.config.speculation.draft == "mtp" and not model.has_mtp:
        raise ConfigError(
            f"--draft mtp: {model.architecture} as it lies there has no MTP head to draft with; "
            "--draft ngram needs none",
            param="draft",
        )
    if resolved.kv_dtype != resolved.dtype:
        raise NotBuilt(
            f"not built yet: --kv-dtype {resolved.kv_dtype} beside --dtype {resolved.dtype} "
            "(only the same is)",
            param="kv_dtype",
        )


def _check_stages(resolved: Resolved, model: ModelFacts, device: DeviceFacts) -> None:
    parallel = resolved.config.parallel
    if parallel.pp > model.num_layers:
        raise ConfigError(
            f"--pp {parallel.pp}: the model has {model.num_layers} layers", param="pp"
        )
    if parallel.stages and sum(parallel.stages) != model.num_layers:
        listed = ",".join(map(str, parallel.stages))
        raise ConfigError(
            f"--stages {listed} adds up to {sum(parallel.stages)}, the model has "
            f"{model.num_layers} layers",
            param="stages",
        )
    assert parallel.lanes is not None
    kind = _LANES_OF_DEVICE.get(parallel.lanes, device.kind)
    if kind != device.kind:
        raise ConfigError(
            f"--lanes {parallel.lanes} is for {kind}, the device is {device.kind}", param="lanes"
        )


_Choice = tuple[object, SourceKind, str]


def _choose_device(_: Resolved, model: ModelFacts, device: DeviceFacts) -> _Choice:
    return device.kind, "device", device.name


def _choose_threads(so_far: Resolved, model: ModelFacts, device: DeviceFacts) -> _Choice:
    workers = count_workers(so_far.config)
    if device.kind == "cpu" and workers > 1:
        note = f"cores this process may use, over {workers} workers"
        return max(1, device.threads // workers), "device", note
    return device.threads, "device", "cores this process may use"


def _choose_dtype(_: Resolved, model: ModelFacts, device: DeviceFacts) -> _Choice:
    probed = {name: device.probe_ms[name] for name in _PROBED_DTYPES if name in device.probe_ms}
    if device.kind == "cpu" and probed:
        times = ", ".join(f"{name} {ms:.2f} ms" for name, ms in probed.items())
        fastest = min(probed, key=probed.__getitem__)
        if probed.get(model.dtype, math.inf) <= _CLEARLY_FASTER * probed[fastest]:
            return model.dtype, "measured", f"the checkpoint's, none is clearly faster: {times}"
        return fastest, "measured", f"fastest of {times}"
    if model.dtype not in options_by_name()["dtype"].choices:
        raise ConfigError(
            f"--dtype auto: the checkpoint's {model.dtype} cannot be run; name one", param="dtype"
        )
    return model.dtype, "model", "the checkpoint's"


def _choose_kv_dtype(so_far: Resolved, model: ModelFacts, device: DeviceFacts) -> _Choice:
    return so_far.dtype, so_far.sources["model.dtype"].kind, "same as dtype"


def _choose_max_context(so_far: Resolved, model: ModelFacts, device: DeviceFacts) -> _Choice:
    pool = so_far.config.memory.kv_pool_tokens
    if pool is not None and pool < model.max_context:
        kind = so_far.sources["memory.kv_pool_tokens"].kind
        return pool, kind, f"kv_pool_tokens; the model's own limit is {model.max_context}"
    return model.max_context, "model", "the model's own limit"


def _choose_max_running(so_far: Resolved, model: ModelFacts, device: DeviceFacts) -> _Choice:
    wanted, slots = _MAX_RUNNING[device.kind], so_far.config.memory.state_slots
    if slots is not None and slots < wanted:
        return slots, so_far.sources["memory.state_slots"].kind, "one a state slot"
    return wanted, "device", f"for {device.kind}"


def _choose_state_slots(so_far: Resolved, model: ModelFacts, device: DeviceFacts) -> _Choice:
    kind = so_far.sources["schedule.max_running"].kind
    return math.ceil(so_far.max_running * 1.25), kind, "max_running and a quarter more"


def _choose_prefill_tokens(_: Resolved, model: ModelFacts, device: DeviceFacts) -> _Choice:
    return _PREFILL_TOKENS[device.kind], "device", f"for {device.kind}"


def _choose_memory_fraction(so_far: Resolved, model: ModelFacts, device: DeviceFacts) -> _Choice:
    if so_far.config.memory.kv_pool_tokens is not None:
        return _MEMORY_FRACTION_WITH_POOL, "device", "kv_pool_tokens says how much is wanted"
    return _MEMORY_FRACTION[device.kind], "device", f"for {device.kind}"


def _choose_cohorts(so_far: Resolved, model: ModelFacts, device: DeviceFacts) -> _Choice:
    return so_far.config.parallel.pp, "default", "as many as stages"


def _choose_stages_per_worker(so_far: Resolved, model: ModelFacts, device: DeviceFacts) -> _Choice:
    return stages_per_worker(so_far.config), "default", "all in one worker, or one in each"


def _choose_lanes(so_far: Resolved, model: ModelFacts, device: DeviceFacts) -> _Choice:
    parallel = so_far.config.parallel
    if parallel.stages_per_worker == parallel.pp:
        return "local", "default", "one worker holds every stage"
    if device.kind == "cpu" and device.shares_memory:
        return "peer", "device", "all workers are on one host"
    return _LANES[device.kind], "device", f"for {device.kind}"


def _choose_draft_tokens(so_far: Resolved, model: ModelFacts, device: DeviceFacts) -> _Choice:
    if so_far.config.speculation.draft == "none":
        return 0, "default", "draft none"
    return 3, "default", f"at most, as many as pay; draft {so_far.config.speculation.draft}"


def _choose_names(so_far: Resolved, model: ModelFacts, device: DeviceFacts) -> _Choice:
    return (so_far.config.model.model,), so_far.sources["model.model"].kind, "MODEL as given"


# In the order in which they may look at one another.
_CHOICES: dict[str, Callable[[Resolved, ModelFacts, DeviceFacts], _Choice]] = {
    "served_model_name": _choose_names,
    "device": _choose_device,
    "threads": _choose_threads,
    "dtype": _choose_dtype,
    "kv_dtype": _choose_kv_dtype,
    "max_context": _choose_max_context,
    "max_running": _choose_max_running,
    "state_slots": _choose_state_slots,
    "prefill_tokens": _choose_prefill_tokens,
    "memory_fraction": _choose_memory_fraction,
    "cohorts": _choose_cohorts,
    "stages_per_worker": _choose_stages_per_worker,
    "lanes": _choose_lanes,
    "draft_tokens": _choose_draft_tokens,
}
