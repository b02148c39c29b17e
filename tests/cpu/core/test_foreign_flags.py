"""Flags of other engines are answered with ours, and the answers stay true."""

from __future__ import annotations

import re

import pytest

from draftmark.core.foreign_flags import explain, foreign_flags
from draftmark.core.options import options


@pytest.mark.parametrize(
    ("flag", "ours"),
    [
        ("--max-model-len", "--max-context"),
        ("--mem-fraction-static", "--memory-fraction"),
        ("--gpu-memory-utilization", "--memory-fraction"),
        ("--tensor-parallel-size", "--tp"),
        ("-tp", "--tp"),
        ("--max-num-seqs", "--max-running"),
        ("--max-num-batched-tokens", "--prefill-tokens"),
        ("--context-length", "--max-context"),
        ("--kv-cache-dtype", "--kv-dtype"),
        ("--enforce-eager", "--eager all"),
        ("--speculative-config", "--draft"),
        ("--chunked-prefill-size", "--prefill-tokens"),
        ("--max-running-requests", "--max-running"),
        ("--ctx-size", "--max-context"),
        ("-c", "--max-context"),
        ("-ngl", "--device"),
        ("--n-gpu-layers", "--device"),
        ("max_model_len", "--max-context"),
        ("--model", "MODEL"),
        ("--no-enable-prefix-caching", "always on"),
    ],
)
def test_a_habit_is_answered_with_our_flag(flag: str, ours: str) -> None:
    answer = explain(flag)
    assert answer is not None and ours in answer and answer.startswith(flag)


def test_what_nobody_has_is_unknown() -> None:
    assert explain("--frobnicate") is None
    assert explain("frobnicate") is None


def test_every_flag_an_answer_names_is_one_of_ours() -> None:
    ours = {option.flag for option in options()} | {"--prompt", "--max-tokens", "--temperature"}
    for flag in foreign_flags():
        answer = explain(flag)
        assert answer is not None
        named = set(re.findall(r"--[a-z][a-z-]*", answer.removeprefix(flag)))
        assert named <= ours, flag


def test_no_foreign_flag_is_ours() -> None:
    assert not {option.flag for option in options()} & set(foreign_flags())
