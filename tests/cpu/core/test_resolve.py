"""Every auto becomes a value with its source; contradictions and unbuilt features are refused."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftmark.core.errors import ConfigError, NotBuilt
from draftmark.core.options import options
from draftmark.core.resolve import (
    Declared,
    Resolved,
    check_built,
    count_workers,
    from_dict,
    load_config,
    resolve,
    resolved_from_record,
    to_dict,
    to_yaml,
)
from draftmark.core.start import DeviceFacts, ModelFacts

MODEL = ModelFacts(
    model_type="llama",
    architecture="LlamaForCausalLM",
    num_layers=30,
    vocab_size=49152,
    max_context=8192,
    dtype="bfloat16",
    eos_ids=(2,),
    num_parameters=134_000_000,
    checkpoint_bytes=269_000_000,
)
CPU = DeviceFacts(
    kind="cpu",
    name="a CPU",
    domain="here",
    total_bytes=16 << 30,
    free_bytes=8 << 30,
    threads=2,
    probe_ms={"bfloat16": 8.0, "float32": 2.5, "float16": 1.0},
)
GPU = DeviceFacts(
    kind="cuda",
    name="a GPU",
    domain="here 0",
    total_bytes=80 << 30,
    free_bytes=79 << 30,
    threads=16,
)


def on_cpu(**given: object) -> Resolved:
    return resolve(load_config(given), MODEL, CPU)


def test_defaults_on_a_cpu() -> None:
    resolved = on_cpu()
    assert (resolved.device, resolved.threads) == ("cpu", 2)
    assert (resolved.dtype, resolved.kv_dtype) == ("float32", "float32")
    assert (resolved.max_context, resolved.max_running) == (8192, 64)
    assert (resolved.state_slots, resolved.prefill_tokens) == (80, 2048)
    assert resolved.memory_fraction == 0.5
    assert resolved.config.memory.kv_pool_tokens is None
    assert resolved.config.model.served_model_name == ("smollm2",)
    assert resolved.config.parallel.cohorts == 1 and resolved.config.parallel.lanes == "local"
    assert resolved.config.speculation.draft_tokens == 0


def test_defaults_on_a_gpu() -> None:
    resolved = resolve(load_config({}), MODEL, GPU)
    assert (resolved.device, resolved.dtype, resolved.max_running) == ("cuda", "bfloat16", 256)
    assert (resolved.state_slots, resolved.prefill_tokens) == (320, 4096)
    assert resolved.memory_fraction == 0.9
    assert resolved.sources["model.dtype"].kind == "model"


def test_the_dtype_probe_shows_its_times_and_never_picks_float16() -> None:
    source = on_cpu().sources["model.dtype"]
    assert source.kind == "measured"
    assert "bfloat16 8.00 ms" in source.note and "float32 2.50 ms" in source.note
    for times, dtype in (
        ({"bfloat16": 1.0, "float32": 2.5}, "bfloat16"),
        ({"bfloat16": 1.2, "float32": 1.0}, "bfloat16"),  # not clearly faster
        ({"bfloat16": 1.3, "float32": 1.0}, "float32"),
    ):
        device = msgspec.structs.replace(CPU, probe_ms=times)
        assert resolve(load_config({}), MODEL, device).dtype == dtype
    single = msgspec.structs.replace(MODEL, dtype="float16")
    assert resolve(load_config({}), single, CPU).dtype == "float32"


def test_an_explicit_dtype_wins_over_the_probe() -> None:
    resolved = on_cpu(dtype="float16")
    assert (resolved.dtype, resolved.kv_dtype) == ("float16", "float16")
    assert resolved.sources["model.dtype"].kind == "flag"


def test_without_a_probe_the_checkpoint_decides() -> None:
    unprobed = msgspec.structs.replace(CPU, probe_ms={})
    resolved = resolve(load_config({}), MODEL, unprobed)
    assert (resolved.dtype, resolved.sources["model.dtype"].kind) == ("bfloat16", "model")
    fp8 = msgspec.structs.replace(MODEL, dtype="float8_e4m3fn")
    with pytest.raises(ConfigError, match="float8_e4m3fn"):
        resolve(load_config({}), fp8, unprobed)


def test_autos_follow_what_was_asked_for() -> None:
    resolved = on_cpu(max_running=5)
    assert resolved.state_slots == 7
    resolved = on_cpu(state_slots=3)
    assert (resolved.max_running, resolved.state_slots) == (3, 3)
    resolved = on_cpu(kv_pool_tokens=1024)
    assert (resolved.max_context, resolved.memory_fraction) == (1024, 0.9)
    assert resolved.sources["model.max_context"].kind == "flag"


@pytest.mark.parametrize(
    ("given_flags", "words"),
    [
        ({"max_context": 4096, "kv_pool_tokens": 1024}, "--max-context 4096 is above"),
        ({"max_running": 9, "state_slots": 8}, "--max-running 9 is above --state-slots 8"),
        ({"eager": "all,verify"}, "--eager takes none, or all"),
        ({"eager": ""}, "an empty list"),
        ({"eager": "draft,draft"}, "--eager"),
        ({"stages": "10,20"}, "--stages names 2 stages, --pp is 1"),
        ({"pp": 4, "stages_per_worker": 3}, "--stages-per-worker 3 does not divide --pp 4"),
        (
            {"pp": 4, "stages_per_worker": 2, "lanes": "test"},
            "--lanes test needs every stage in one worker",
        ),
        ({"tp": 0}, "--tp must be a whole number of at least 1"),
        ({"stages": "3,0", "pp": 2}, "--stages must be a comma separated list"),
        ({"draft_tokens": 2}, "--draft-tokens 2 needs --draft"),
        ({"max_contxt": 4}, "unknown option max_contxt (did you mean max_context?)"),
        ({"max_model_len": 4}, "ours is --max-context"),
        ({"max_context": "x"}, "--max-context must be"),
    ],
)
def test_contradictions_are_refused_when_read(given_flags: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(given_flags)
    assert words in refused.value.message


def test_what_model_or_device_cannot_do() -> None:
    with pytest.raises(ConfigError, match="above the model's own limit of 8192"):
        on_cpu(max_context=8193)
    with pytest.raises(ConfigError, match="--device cuda: the device found is a CPU"):
        on_cpu(device="cuda")
    with pytest.raises(ConfigError, match="--pp 31: the model has 30 layers"):
        on_cpu(pp=31)
    with pytest.raises(ConfigError, match="--stages 10,10 adds up to 20, the model has 30 layers"):
        on_cpu(pp=2, stages="10,10")
    with pytest.raises(ConfigError, match="--lanes nccl is for cuda, the device is cpu"):
        on_cpu(pp=2, lanes="nccl")
    with pytest.raises(NotBuilt, match="--kv-dtype bfloat16 beside --dtype float32"):
        on_cpu(kv_dtype="bfloat16")


def test_workers_and_what_connects_them() -> None:
    for flags, workers, lanes, cohorts, threads in (
        ({}, 1, "local", 1, 2),
        ({"pp": 2}, 2, "gloo", 2, 1),
        ({"pp": 4, "tp": 2, "stages_per_worker": 2}, 4, "gloo", 4, 1),
        ({"pp": 3, "lanes": "test", "cohorts": 2}, 1, "test", 2, 2),
        ({"pp": 2, "tp": 2, "lanes": "local"}, 2, "local", 2, 1),
    ):
        resolved = on_cpu(**flags)
        parallel = resolved.config.parallel
        assert count_workers(resolved.config) == workers
        assert (parallel.lanes, parallel.cohorts, resolved.threads) == (lanes, cohorts, threads)
    together = msgspec.structs.replace(CPU, shares_memory=True)
    for flags, lanes in (({"pp": 2}, "peer"), ({"pp": 2, "lanes": "gloo"}, "gloo"), ({}, "local")):
        found = resolve(load_config(flags), MODEL, together).config.parallel.lanes
        assert found == lanes
    on_gpus = resolve(load_config({"pp": 2}), MODEL, GPU)
    assert on_gpus.config.parallel.lanes == "nccl" and on_gpus.threads == 16


UNBUILT: list[dict[str, object]] = [
    {"graph_rows": "4,8"},
    {"eager": "none"},
    {"eager": "verify,draft"},
    {"tool_parser": "hermes"},
    {"reasoning_parser": "qwen3"},
    {"debug_sync": "graph"},
    {"dtype": "float32", "kv_dtype": "bfloat16"},
]


@pytest.mark.parametrize("flags", UNBUILT, ids=str)
def test_unbuilt_values_are_refused_by_name_before_anything_starts(
    flags: dict[str, object],
) -> None:
    declared = load_config(flags)
    with pytest.raises(NotBuilt) as refused:
        check_built(declared.config)
    assert refused.value.param in flags
    assert "--" + str(refused.value.param).replace("_", "-") in refused.value.message
    with pytest.raises(NotBuilt):
        resolve(declared, MODEL, CPU)


def test_the_incumbent_of_the_seed_parses_and_every_unbuilt_flag_is_named() -> None:
    declared = load_config(
        {
            "tp": "8",
            "draft": "mtp",
            "draft_tokens": "4",
            "memory_fraction": "0.90",
            "max_running": "32",
            "graph_rows": "4,8,12,16",
        }
    )
    with pytest.raises(NotBuilt) as refused:
        check_built(declared.config)
    assert "--graph-rows 4,8,12,16" in refused.value.message
    assert "--draft" not in refused.value.message


def test_drafts_need_a_head() -> None:
    declared = load_config({"draft": "mtp"})
    with pytest.raises(ConfigError, match=r"--draft mtp: .* has no MTP head.*; --draft ngram"):
        resolve(declared, MODEL, CPU)
    assert resolve(load_config({"draft": "ngram"}), MODEL, CPU).draft_tokens == 3
    with_head = msgspec.structs.replace(MODEL, has_mtp=True)
    assert resolve(declared, with_head, CPU).draft_tokens == 3
    assert resolve(load_config({}), with_head, CPU).draft_tokens == 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({}, "0.777 needs drafts: --draft mtp or ngram"),
        ({"draft": "ngram", "draft_tokens": 0}, "0.777 needs drafts"),
        ({"draft": "ngram", "synthetic_acceptance": "0.9,0.5"}, "has 2 rates, --draft-tokens is 3"),
        (
            {"draft": "ngram", "draft_tokens": 1, "synthetic_acceptance": [0.9, 0.5]},
            "0.9,0.5 has 2 rates, --draft-tokens is 1",
        ),
        ({"draft": "ngram", "synthetic_acceptance": "1.5"}, "each item a number from 0 to 1"),
    ],
    ids=str,
)
def test_synthetic_acceptance_needs_a_rate_for_each_draft(
    flags: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve(load_config({"synthetic_acceptance": 0.777, **flags}), MODEL, CPU)
    assert words in refused.value.message and refused.value.param == "synthetic_acceptance"


def test_synthetic_acceptance_goes_with_the_configuration() -> None:
    resolved = resolve(
        load_config({"draft": "ngram", "synthetic_acceptance": "0.9,0.5,0.2"}), MODEL, CPU
    )
    assert resolved.config.speculation.synthetic_acceptance == (0.9, 0.5, 0.2)
    assert from_dict(to_dict(resolved.config)) == resolved.config
    assert resolved_from_record(resolved.record()).config == resolved.config


def test_the_neutral_values_of_unbuilt_features_are_fine() -> None:
    neutral = {"tp": 1, "cohorts": 1, "lanes": "local", "draft_tokens": 0, "eager": "all"}
    check_built(load_config(neutral).config)
    check_built(load_config({"dtype": "float32", "kv_dtype": "float32"}).config)


def test_a_record_survives_json_and_the_wire() -> None:
    resolved = on_cpu(max_context=100, served_model_name="a,b").with_value(
        "kv_pool_tokens", 4096, note="what 1.2 GB hold"
    )
    assert resolved_from_record(json.loads(json.dumps(resolved.record()))) == resolved
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(resolved), type=Resolved) == resolved
    declared = load_config({"max_context": 100})
    assert msgspec.json.decode(msgspec.json.encode(declared), type=Declared) == declared
    entry = resolved.record()["config"]["memory"]["kv_pool_tokens"]  # type: ignore[index]
    assert entry == {"value": 4096, "source": "measured", "note": "what 1.2 GB hold"}


def test_every_value_has_a_source() -> None:
    assert set(on_cpu().sources) == {option.key for option in options()}


started = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["auto", "float32", "float16"]),
        "max_context": st.integers(2, 8192),
        "served_model_name": st.lists(st.sampled_from(["a", "b, c", "ü"]), max_size=2),
        "memory_fraction": st.floats(0.01, 1.0),
        "max_running": st.integers(1, 300),
        "max_turn_ms": st.floats(0.1, 1e4),
        "prefill_tokens": st.integers(1, 10_000),
        "host": st.sampled_from(["127.0.0.1", "::1", "no", "1e3", "0x10"]),
        "port": st.integers(0, 65535),
        "log_prompts": st.booleans(),
        "on_nan": st.sampled_from(["fail", "stop"]),
        "chat_template": st.sampled_from(["auto", "a file: # not a comment.jinja", "2024-01-01"]),
    },
)


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(flags=started, device=st.sampled_from([CPU, GPU]), pool=st.integers(1, 600))
def test_the_shown_file_starts_the_same_server(
    tmp_path: Path, flags: dict[str, object], device: DeviceFacts, pool: int
) -> None:
    """`GET /v1/engine/config?format=yaml` fed back to --config, twice."""
    first = resolve(load_config(flags), MODEL, device)
    tokens = max(pool * 16, first.max_context)
    first = first.with_value("kv_pool_tokens", tokens, note="what the memory allows")
    path = tmp_path / "run.yaml"
    path.write_text(to_yaml(first))
    declared = load_config({}, path)
    assert to_yaml(declared).splitlines()[2:] != []
    second = resolve(declared, MODEL, device)
    assert without_share(second) == without_share(first)
    path.write_text(to_yaml(second))
    third = resolve(load_config({}, path), MODEL, device)
    assert third.config == second.config


def without_share(resolved: Resolved) -> object:
    """All but memory_fraction, which only a computed pool depends on."""
    return resolved.with_value("memory_fraction", None).config


def test_a_computed_pool_does_not_pin_the_share_of_memory(tmp_path: Path) -> None:
    shown = to_yaml(on_cpu(memory_fraction=0.3).with_value("kv_pool_tokens", 16384))
    assert "memory_fraction: auto" in shown and "kv_pool_tokens: 16384" in shown
    kept = to_yaml(on_cpu(memory_fraction=0.3, kv_pool_tokens=16384))
    assert "memory_fraction: 0.3" in kept
