"""Declared against effective settings: every spelling, every file, and one word for each key."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from draftmark.bench.declared import Difference, differences, drift, read_declared
from draftmark.bench.declared.names import canonical, is_same, plain, settled
from draftmark.bench.result import Counters, Drift, DriftState, ServerState
from draftmark.core.errors import ConfigError

SCRIPT = """#!/bin/bash
# vllm serve an/older --max-model-len 1
exec vllm serve org/model --max-model-len 32k \\
  --gpu-memory-utilization=0.90 -tp 8 --enforce-eager --no-enable-prefix-caching \\
  --cuda-graph-sizes 1 2 4 \\
  --speculative-config '{"method": "mtp", "num_speculative_tokens": 4}'
"""


def _state(config: dict[str, Any] | None) -> ServerState:
    return ServerState(
        adapter="vllm",
        at="",
        url="",
        model="m",
        version=None,
        start_id=None,
        config=config,
        counters=Counters(),
    )


def _write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def _states(rows: list[Drift]) -> dict[str, DriftState]:
    return {row.key: row.state for row in rows}


def test_a_script_is_read_for_its_one_command(tmp_path: Path) -> None:
    path = _write(tmp_path, "launch.sh", SCRIPT)
    declared = read_declared(path)
    assert declared.values == {
        "model": "org/model",
        "max_model_len": "32k",
        "gpu_memory_utilization": "0.90",
        "tp": "8",
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "cuda_graph_sizes": ["1", "2", "4"],
        "speculative_config.method": "mtp",
        "speculative_config.num_speculative_tokens": 4,
    }
    assert declared.sha256 == hashlib.sha256(SCRIPT.encode()).hexdigest()
    assert (declared.path, declared.kind) == (str(path), "argv")


def test_yaml_and_compose_are_read(tmp_path: Path) -> None:
    nested = _write(tmp_path, "run.yaml", "schedule:\n  max_running: 4\nmodel: {dtype: auto}\n")
    assert read_declared(nested).values == {"schedule.max_running": 4, "model.dtype": "auto"}
    compose = _write(
        tmp_path,
        "compose.yaml",
        "services:\n  web: {image: x}\n  llm:\n    entrypoint: [python, -m, sglang.launch_server]\n"
        '    command: "--context-length 8192 --disable-radix-cache"\n',
    )
    declared = read_declared(compose)
    assert declared.kind == "compose"
    # `-m` of Python is the module, not a model.
    assert declared.values == {"context_length": "8192", "disable_radix_cache": True}
    assert read_declared(compose, service="llm") == declared


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "- 1\n", "no mapping"),
        ("a.yaml", "a: [\n", "a.yaml"),
        ("a.yaml", "{}\n", "no setting found"),
        ("a.yaml", "tp: 2\npp: 1\ntp: 4\n", "a.yaml: key tp comes twice, line 3"),
        ("a.yaml", "max-model-len: 2\nmax_model_len: 4\n", "max_model_len is declared twice"),
        ("c.yaml", "services:\n  a: {command: --x 1, command: --x 2}\n", "key command comes twice"),
        ("a.sh", "vllm serve a --x 1\nvllm serve b --x 1\n", "2 commands"),
        ("a.sh", "echo hello\n", "0 commands"),
        ("a.sh", "vllm serve a --x '{\"b\": '\n", "--x"),
        ("a.sh", "vllm serve a --x 'open\n", "No closing quotation"),
        ("c.yaml", "services:\n  a: {command: --x 1}\n  b: {command: --y 1}\n", "a, b"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_declared(_write(tmp_path, name, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_declared(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("--max-model-len", "max_seq_len"),
        ("context-length", "model.max_context"),
        ("server_info.vllm_config.cache_config.gpu_memory_utilization", "mem_fraction_static"),
        ("speculative_config.num_speculative_tokens", "draft_tokens"),
    ],
)
def test_names_that_mean_the_same(one: str, other: str) -> None:
    assert canonical(one) == canonical(other)


def test_values_that_mean_the_same() -> None:
    same = [
        ("32k", 32000),
        ("32K", 32768),
        ("0.90", 0.9),
        ("torch.bfloat16", "bf16"),
        ("22,18", [22, 18]),
        ("True", True),
        (["4"], 4),
        ("auto", 17),
        ("none", None),
    ]
    assert all(is_same(plain(a), plain(b)) for a, b in same)
    different = [(1, True), ("a", "b"), (8, 4), ([1, 2], [1, 3]), ([1, 2], [1]), (8, None)]
    assert not any(is_same(plain(a), plain(b)) for a, b in different)
    assert settled("disable-radix-cache", "true") == ("prefix_cache", False)
    assert settled("speculative_config.model", "x")[0] != settled("model", "x")[0]


def test_each_key_gets_one_word(tmp_path: Path) -> None:
    declared = read_declared(_write(tmp_path, "launch.sh", SCRIPT))
    config = {
        "max_model_len": 16384,
        "cache_config": {"gpu_memory_utilization": "0.9", "block_size": "16", "sliding": "None"},
        "argv": ["vllm", "serve", "org/model", "-tp", "8"],
    }
    rows = drift(declared, _state(config))
    assert _states(rows) == {
        "model": DriftState.EQUAL,
        "max_model_len": DriftState.DIFFERS,
        "gpu_memory_utilization": DriftState.EQUAL,
        "tp": DriftState.EQUAL,
        "enforce_eager": DriftState.MISSING,
        "enable_prefix_caching": DriftState.MISSING,
        "cuda_graph_sizes": DriftState.MISSING,
        "speculative_config.method": DriftState.MISSING,
        "speculative_config.num_speculative_tokens": DriftState.MISSING,
        "cache_config.block_size": DriftState.IMPLICIT,
    }
    by_key = {row.key: row for row in rows}
    assert (by_key["max_model_len"].declared, by_key["max_model_len"].effective) == (32000, 16384)
    assert by_key["tp"].effective == "8 (by its command line)"
    assert all(row.state is DriftState.MISSING for row in drift(declared, _state(None)))


def test_places_of_a_server_that_disagree_are_shown(tmp_path: Path) -> None:
    declared = read_declared(_write(tmp_path, "a.yaml", "max-model-len: 8\n"))
    config = {"model_config": {"max_model_len": 8}, "scheduler_config": {"max_model_len": 4}}
    row = drift(declared, _state(config))[0]
    assert row.state is DriftState.DIFFERS
    assert row.effective == {"model_config.max_model_len": 8, "scheduler_config.max_model_len": 4}
    # A setting left to the server is null in its arguments and a number where it took effect.
    auto = {"context_length": None, "max_model_len": 8, "draft_model_config": {"max_model_len": 2}}
    assert drift(declared, _state(auto))[0].state is DriftState.EQUAL


def test_draftmark_names_the_file_it_read(tmp_path: Path) -> None:
    path = _write(tmp_path, "run.yaml", "schedule:\n  max_running: 4\nmodel: {dtype: auto}\n")
    declared = read_declared(path)
    config: dict[str, Any] = {
        "model": {"dtype": {"value": "bfloat16", "source": "model", "note": ""}},
        "schedule": {
            "max_running": {"value": 4, "source": "file", "note": ""},
            "max_queue": {"value": 64, "source": "default", "note": ""},
        },
        "file": {"path": "elsewhere.yaml", "sha256": declared.sha256},
        "ready": {"seconds": {"hello": 1.0}},
    }
    rows = drift(declared, _state(config))
    assert _states(rows) == {
        "file": DriftState.EQUAL,
        "schedule.max_running": DriftState.EQUAL,
        "model.dtype": DriftState.EQUAL,
        "schedule.max_queue": DriftState.IMPLICIT,
    }
    config["file"] = {"path": "elsewhere.yaml", "sha256": "another"}
    assert drift(declared, _state(config))[0].state is DriftState.DIFFERS
    config["file"] = None
    assert drift(declared, _state(config))[0].state is DriftState.MISSING
    del config["file"]
    assert drift(declared, _state(config))[0].key == "schedule.max_running"


def test_two_servers_are_told_apart_across_their_names() -> None:
    a = _state({"max_model_len": 8192, "cache_config": {"gpu_memory_utilization": "0.9"}})
    b = _state({"context_length": 8192, "mem_fraction_static": 0.8, "tp_size": 2})
    assert differences(a, b) == [
        Difference("memory_fraction", 0.9, 0.8),
        Difference("tp", None, 2),
    ]
    assert differences(a, a) == []
