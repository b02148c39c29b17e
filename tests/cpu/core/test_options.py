"""One reader for flags, files and Python: what every option takes, and how it refuses."""

from __future__ import annotations

import math

import pytest

from draftmark.core.errors import ConfigError
from draftmark.core.options import Kind, options, options_by_name, read_value

# Architecture section 6: names that stay.
DESIGN_NAMES = {
    "model": "dtype kv_dtype max_context served_model_name chat_template tool_parser "
    "reasoning_parser seed",
    "memory": "memory_fraction kv_pool_tokens state_slots snapshots",
    "schedule": "max_running max_turn_ms prefill_tokens max_queue",
    "parallel": "tp pp stages cohorts lanes stages_per_worker",
    "graphs": "graph_rows eager",
    "speculation": "draft draft_tokens synthetic_acceptance",
    "server": "host port api_key_file",
    "debug": "on_nan debug_sync record_plans",
}


def test_the_names_of_the_design_exist() -> None:
    for section, names in DESIGN_NAMES.items():
        for name in names.split():
            assert options_by_name()[name].section == section


def test_every_option_is_documented_and_its_default_is_allowed() -> None:
    for option in options():
        assert option.doc.endswith("."), option.key
        assert read_value(option, option.default, where="default") == option.default
        assert option.optional or option.default is not None


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("max_context", "4096", 4096),
        ("max_context", "auto", None),
        ("max_context", None, None),
        ("memory_fraction", "0.5", 0.5),
        ("memory_fraction", 1, 1.0),
        ("drain_seconds", "1e1", 10.0),
        ("seed", "-5", -5),
        ("seed", 2**63 - 1, 2**63 - 1),
        ("served_model_name", "a, b", ("a", "b")),
        ("served_model_name", ["x,y"], ("x,y",)),
        ("served_model_name", "", ()),
        ("graph_rows", "1,2,4", (1, 2, 4)),
        ("graph_rows", 4, (4,)),
        ("eager", "verify,draft", ("verify", "draft")),
        ("log_prompts", "true", True),
        ("log_prompts", False, False),
        ("dtype", "bfloat16", "bfloat16"),
    ],
)
def test_values_that_are_read(name: str, given: object, value: object) -> None:
    read = read_value(options_by_name()[name], given, where="here")
    assert read == value and type(read) is type(value)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("max_context", "4k", "--x must be a whole number of at least 2, or auto; got '4k'"),
        ("max_context", 1, "at least 2"),
        ("max_context", 4096.0, "whole number"),
        ("max_context", True, "got True"),
        ("max_context", 10**99, "at least 2"),
        ("max_context", "9" * 5000, "whole number"),
        ("memory_fraction", 0, "a number above 0, at most 1, or auto; got 0"),
        ("memory_fraction", math.nan, "got nan"),
        ("memory_fraction", "inf", "got 'inf'"),
        ("step_timeout_s", 0, "above 0"),
        ("port", 70000, "from 0 to 65535"),
        ("port", None, "got nothing"),
        ("port", "auto", "got 'auto'"),
        ("dtype", "bf16", "(did you mean bfloat16?)"),
        ("host", "", "text"),
        ("host", "a\nb", "text"),
        ("host", 127, "(put it in quotes)"),
        ("chat_template", True, "(put it in quotes)"),
        ("eager", "verify,drft", "(did you mean draft?)"),
        ("graph_rows", [1, 0], "comma separated list, each item a whole number of at least 1"),
        ("log_prompts", "yes", "true or false"),
        ("log_prompts", 1, "true or false"),
    ],
)
def test_values_that_are_refused_in_one_line(name: str, given: object, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_value(options_by_name()[name], given, where="--x")
    assert words in refused.value.message
    assert "\n" not in refused.value.message
    assert refused.value.param == name


def test_kinds_follow_the_annotations() -> None:
    by_name = options_by_name()
    assert by_name["max_turn_ms"].kind is Kind.FLOAT and by_name["max_turn_ms"].optional
    assert by_name["stages"].kind is Kind.INT and by_name["stages"].is_list
    assert by_name["log_prompts"].kind is Kind.BOOL
    assert by_name["model"].flag == "MODEL"
    assert by_name["kv_pool_tokens"].flag == "--kv-pool-tokens"
    assert by_name["kv_pool_tokens"].key == "memory.kv_pool_tokens"
