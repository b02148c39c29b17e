"""YAML files: strict reading, and writing that reads back as the same tree."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftmark.core.config import Config
from draftmark.core.config_file import read_tree, write_yaml
from draftmark.core.declared import replace_values
from draftmark.core.errors import ConfigError
from draftmark.core.options import Kind, Option, options
from draftmark.core.resolve import from_dict, load_config, to_dict


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "run.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    path = write(tmp_path, "model: {max_context: 1024, dtype: float32}\nserver:\n  port: 9000\n")
    declared = load_config({"max_context": "512"}, path)
    assert declared.config.model.max_context == 512
    assert declared.config.model.dtype == "float32"
    assert declared.config.server.port == 9000
    kinds = {key: declared.sources[key].kind for key in ("model.max_context", "server.port")}
    assert kinds == {"model.max_context": "flag", "server.port": "file"}
    assert declared.sources["model.seed"].kind == "default"


def test_the_record_names_the_file_and_its_content(tmp_path: Path) -> None:
    path = write(tmp_path, "model: {seed: 3}\n")
    declared = load_config({}, path)
    assert declared.file is not None
    assert declared.file.path == str(path.resolve())
    assert declared.file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("text", ["", "# only a comment\n", "model:\n", "model: {}\n"])
def test_an_empty_file_changes_nothing(tmp_path: Path, text: str) -> None:
    assert load_config({}, write(tmp_path, text)).config == Config()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("modle: {seed: 1}", "unknown key modle (did you mean model?)"),
        ("model: {max_contxt: 1}", "(did you mean model.max_context?)"),
        ("model: {port: 1}", "unknown key model.port; it is server.port"),
        ("max_context: 1024", "unknown key max_context; it is model.max_context"),
        ("model: {max-context: 1024}", "it is model.max_context"),
        ("model: {max_model_len: 1024}", "ours is --max-context"),
        ("gpu_memory_utilization: 0.9", "ours is --memory-fraction"),
        ("model: {max_context: lots}", "model.max_context must be a whole number"),
        ("model: {model: 123}", "(put it in quotes)"),
        ("server: {port: }", "server.port must be a whole number from 0 to 65535; got nothing"),
        ("model: smollm2", "model must hold keys and values, got 'smollm2'"),
        ("- model", "must hold sections"),
        ("just text", "must hold sections"),
        ("model: {seed: 1, seed: 2}", "line 1: key seed is given twice"),
        ("model: {seed: 1}\nmodel: {seed: 2}", "line 2: key model is given twice"),
        ("model: {seed: [", "line 1: "),
        ("model: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        (b"\xff\xfe\x00", "not a YAML file"),
        ("model:\n\tseed: 1", "line 2: "),
    ],
)
def test_bad_files_get_one_clear_line(tmp_path: Path, text: str | bytes, words: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        load_config({}, path)
    assert words in refused.value.message
    assert str(path) in refused.value.message
    assert "\n" not in refused.value.message


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            load_config({}, path)


def values_of(option: Option) -> st.SearchStrategy[object]:
    """Any value the field may hold."""
    items: st.SearchStrategy[object]
    if option.choices:
        items = st.sampled_from(option.choices)
    elif option.kind is Kind.TEXT:
        printable = st.characters(exclude_categories=["C", "Z"], include_characters=" ")
        items = st.text(printable).map(
            lambda text: text if text.strip() and text != "auto" else "0x1F: # 'no'"
        )
    elif option.kind is Kind.BOOL:
        items = st.booleans()
    elif option.kind is Kind.INT:
        items = st.integers(int(option.low), int(option.high))
    else:
        items = st.floats(option.low, option.high, exclude_min=option.open_low)
    if option.is_list:
        return st.lists(items, max_size=4).map(tuple)
    return st.none() | items if option.optional else items


configs = st.fixed_dictionaries({option.key: values_of(option) for option in options()}).map(
    lambda values: replace_values(Config(), values)
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=configs, comment=st.text(max_size=30))
def test_yaml_and_dicts_read_back_as_the_same_tree(config: Config, comment: str) -> None:
    text = write_yaml(config, comments={option.key: comment for option in options()})
    assert replace_values(Config(), read_tree(yaml.safe_load(text))) == config
    assert from_dict(to_dict(config)) == config
