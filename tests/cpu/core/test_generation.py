"""Sampling defaults of a model directory and where each came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftmark.core.errors import ModelError
from draftmark.core.generation import SAMPLING_FIELDS, OwnDefaults, read_generation


def _write(directory: Path, generation: Any = None, config: Any = None) -> Path:
    if generation is not None:
        (directory / "generation_config.json").write_text(json.dumps(generation))
    if config is not None:
        (directory / "config.json").write_text(json.dumps(config))
    return directory


def test_nothing_said_leaves_the_defaults_of_the_api(tmp_path: Path) -> None:
    found = read_generation(tmp_path)
    assert found.sampling == {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
    }
    assert set(found.sources.values()) == {"default"}
    assert found.eos_ids == ()


def test_the_file_and_then_our_own_defaults_win(tmp_path: Path) -> None:
    _write(tmp_path, {"temperature": 0.6, "top_k": 20, "top_p": None, "do_sample": True})
    own = OwnDefaults({"temperature": 0.2, "top_p": 0.9}, "built-in smollm2")
    found = read_generation(tmp_path, own=own)
    assert (found.sampling["temperature"], found.sampling["top_k"]) == (0.2, 20)
    assert found.sampling["top_p"] == 0.9
    assert found.sources["temperature"] == "built-in smollm2"
    assert found.sources["top_k"] == "generation_config.json"
    assert found.record()["min_p"] == {"value": 0.0, "source": "default"}


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        ({"eos_token_id": [7, 9]}, {"eos_token_id": 8}, (7, 8, 9)),
        ({"eos_token_id": 7}, {"text_config": {"eos_token_id": 5}}, (5, 7)),
        ({"eos_token_id": 7}, {"eos_token_id": 7, "text_config": None}, (7,)),
        ({}, {"eos_token_id": None}, ()),
    ],
)
def test_end_ids_are_the_union(
    tmp_path: Path, generation: Any, config: Any, expected: tuple[int, ...]
) -> None:
    assert read_generation(_write(tmp_path, generation, config)).eos_ids == expected


@pytest.mark.parametrize(
    ("generation", "words"),
    [
        ([1], "must hold a JSON object"),
        ({"temperature": "hot"}, "temperature must be a number"),
        ({"temperature": -1}, "temperature must be between"),
        ({"top_k": 1.5}, "top_k must be a number"),
        ({"top_p": True}, "top_p must be a number"),
        ({"eos_token_id": "</s>"}, "eos_token_id must be an id"),
        ({"eos_token_id": [1, True]}, "eos_token_id must be an id"),
    ],
)
def test_what_cannot_be_right_is_one_line(tmp_path: Path, generation: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        read_generation(_write(tmp_path, generation))
    assert "generation_config.json" in caught.value.message


def test_a_truncated_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"temperature": ')
    with pytest.raises(ModelError, match="cannot read "):
        read_generation(tmp_path)


def test_every_field_is_one_of_the_sampling_parameters() -> None:
    from draftmark.core.request import SamplingParams

    assert set(SAMPLING_FIELDS) <= set(SamplingParams.__struct_fields__)
