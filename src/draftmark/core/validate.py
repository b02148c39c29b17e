"""What a declared configuration may not say: combinations that contradict, features not built.

Ranges of single values are the business of `core.options`. Everything here is found before any
process starts, and named by flag.
"""

from __future__ import annotations

from draftmark.core.config import Config
from draftmark.core.errors import ConfigError, NotBuilt
from draftmark.core.options import options_by_name
from draftmark.core.synthetic import rates_text
from draftmark.core.topology import ONE_WORKER_LANES


def check_combinations(config: Config) -> None:
    """Raise `ConfigError` for values that exclude one another."""
    _check_pool(config)
    _check_slots(config)
    _check_phases(config)
    _check_stages(config)
    if config.speculation.draft == "none" and config.speculation.draft_tokens:
        raise ConfigError(
            f"--draft-tokens {config.speculation.draft_tokens} needs --draft mtp or ngram",
            param="draft_tokens",
        )
    _check_synthetic(config)


def _check_synthetic(config: Config) -> None:
    rates, most = config.speculation.synthetic_acceptance, config.speculation.draft_tokens
    if not rates:
        return
    what = f"--synthetic-acceptance {rates_text(rates)}"
    if config.speculation.draft == "none" or most == 0:
        raise ConfigError(
            f"{what} needs drafts: --draft mtp or ngram, and --draft-tokens above 0",
            param="synthetic_acceptance",
        )
    if len(rates) > 1 and most is not None and len(rates) != most:
        raise ConfigError(
            f"{what} has {len(rates)} rates, --draft-tokens is {most}: give one for each, or one "
            "for all",
            param="synthetic_acceptance",
        )


def _check_pool(config: Config) -> None:
    context, pool = config.model.max_context, config.memory.kv_pool_tokens
    if context is not None and pool is not None and context > pool:
        raise ConfigError(
            f"--max-context {context} is above --kv-pool-tokens {pool}: a request of that length "
            "could never run",
            param="max_context",
        )


def _check_stages(config: Config) -> None:
    parallel = config.parallel
    if parallel.stages and len(parallel.stages) != parallel.pp:
        raise ConfigError(
            f"--stages names {len(parallel.stages)} stages, --pp is {parallel.pp}", param="stages"
        )
    each = parallel.stages_per_worker
    if each is None:
        return
    if parallel.pp % each:
        raise ConfigError(
            f"--stages-per-worker {each} does not divide --pp {parallel.pp}",
            param="stages_per_worker",
        )
    if parallel.lanes in ONE_WORKER_LANES and each != parallel.pp:
        raise ConfigError(
            f"--lanes {parallel.lanes} needs every stage in one worker: --stages-per-worker {each}",
            param="lanes",
        )


def _check_slots(config: Config) -> None:
    running, slots = config.schedule.max_running, config.memory.state_slots
    if running is not None and slots is not None and running > slots:
        raise ConfigError(
            f"--max-running {running} is above --state-slots {slots}: every running sequence "
            "needs a slot",
            param="max_running",
        )


def _check_phases(config: Config) -> None:
    phases = config.graphs.eager
    alone = {"none", "all"} & set(phases)
    if not phases or (alone and len(phases) > 1) or len(set(phases)) != len(phases):
        raise ConfigError(
            "--eager takes none, or all, or a list of verify,draft,prefill; got "
            f"{','.join(phases) or 'an empty list'}",
            param="eager",
        )


def check_built(config: Config) -> None:
    """Raise `NotBuilt` naming every value whose feature is not built yet."""
    refused = [
        (name, value, built)
        for name, value, allowed, built in _unbuilt_options(config)
        if value not in allowed
    ]
    if not refused:
        return
    texts = [
        f"{options_by_name()[name].flag} {_shown(value)} ({built})"
        for name, value, built in refused
    ]
    raise NotBuilt("not built yet: " + "; ".join(texts), param=refused[0][0])


def _unbuilt_options(config: Config) -> list[tuple[str, object, tuple[object, ...], str]]:
    """(name, value, values that are built, what is built in words)."""
    model = config.model
    kv_built = (None, model.dtype) if model.dtype else (None, model.kv_dtype)
    return [
        ("kv_dtype", model.kv_dtype, kv_built, "only the same as --dtype is"),
        ("tool_parser", model.tool_parser, (None,), "tool calls are not parsed"),
        ("reasoning_parser", model.reasoning_parser, (None,), "reasoning is not parsed"),
        ("graph_rows", config.graphs.graph_rows, ((),), "no graphs are"),
        ("eager", config.graphs.eager, (("all",),), "only all is"),
        ("debug_sync", "graph" in config.debug.debug_sync, (False,), "graphs are not"),
    ]


def _shown(value: object) -> str:
    return ",".join(str(item) for item in value) if isinstance(value, tuple) else str(value)
