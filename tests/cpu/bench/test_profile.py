"""Profiles: the shipped ones are read, and what is wrong in a file is named."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from draftmark.bench.profile import (
    Endpoint,
    Mode,
    PromptSource,
    load_profile,
    read_profile,
    shipped_profiles,
)
from draftmark.core.errors import ConfigError

WHOLE = """
name: mine
mode: gamma
rate: 2
burstiness: 0.5
n_requests: 8
isl: 100
osl: 10
endpoint: completions
sampling: {temperature: 1, seed: 7}
slo: {ttft_ms: 200}
"""


def read(text: str) -> object:
    return read_profile(text.encode(), where="mine.yaml")


def test_every_shipped_profile_is_read_and_named_as_its_file() -> None:
    shipped = shipped_profiles()
    assert {
        "i8k_o1k_c16",
        "i8k_o1k_c16_steady",
        "killer_cc16",
        "prefill_8x16k",
        "chat_short",
        "smoke",
        "cpu_c1_i64_o128",
        "cpu_c8_i512_o64",
    } <= set(shipped)
    for name in shipped:
        assert load_profile(name).profile.name == name


def test_the_shipped_sizes_are_those_of_the_specification() -> None:
    long = load_profile("i8k_o1k_c16").profile
    assert (long.concurrency, long.n_requests, long.isl, long.osl) == (16, 32, 8192, 1024)
    assert long.source is PromptSource.LEDGER
    steady = load_profile("i8k_o1k_c16_steady").profile
    assert steady.n_requests >= 4 * steady.concurrency
    killer = load_profile("killer_cc16").profile
    assert (killer.n_requests, killer.isl, killer.osl) == (16, 16384, 512)
    assert killer.source is PromptSource.RANDOM_IDS
    prefill = load_profile("prefill_8x16k").profile
    assert (prefill.n_requests, prefill.isl, prefill.osl) == (8, 16384, 1)


def test_a_file_is_read_and_its_hash_told(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(WHOLE)
    file = load_profile(str(path))
    assert file.path == str(path)
    assert file.sha256 == hashlib.sha256(WHOLE.encode()).hexdigest()
    profile = file.profile
    assert (profile.mode, profile.rate, profile.burstiness) == (Mode.GAMMA, 2.0, 0.5)
    assert profile.endpoint is Endpoint.COMPLETIONS
    assert (profile.sampling.temperature, profile.sampling.seed) == (1.0, 7)
    assert (profile.slo.ttft_ms, profile.slo.tpot_ms) == (200.0, None)


def test_an_unknown_name_is_answered_with_a_near_one() -> None:
    with pytest.raises(ConfigError, match=r"profile smok: no file.*did you mean smoke\?"):
        load_profile("smok")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (WHOLE + "concurency: 4", r"unknown key concurency \(did you mean concurrency\?\)"),
        (WHOLE.replace("ttft_ms", "ttf_ms"), r"slo: unknown key ttf_ms \(did you mean ttft_ms\?\)"),
        (WHOLE + "isl: 5", "key isl comes twice, line 12"),
        (WHOLE.replace("isl: 100", "isl: many"), r"Expected `int`, got `str` - at `\$.isl`"),
        (WHOLE.replace("isl: 100\n", ""), "missing required field `isl`"),
        (WHOLE.replace("mode: gamma", "mode: gama"), "Invalid enum value 'gama'"),
        (WHOLE.replace("isl: 100", "isl: 0"), "isl must be at least 1"),
        (WHOLE.replace("rate: 2", "rate: .inf"), "rate must be a number above 0"),
        (WHOLE.replace("rate: 2\n", ""), "mode gamma needs a rate"),
        (WHOLE.replace("mode: gamma", "mode: poisson"), "burstiness belongs to mode gamma"),
        (WHOLE.replace("mode: gamma\n", ""), "mode closed has no rate"),
        (WHOLE + "source: file", "source file and the key `file` belong together"),
        (WHOLE + "file: a.jsonl", "source file and the key `file` belong together"),
        ("name: x\nn_requests: 2\nconcurrency: 4\nisl: 1\nosl: 1", "2 requests never have 4"),
        ("- a\n- b", "a profile holds keys and values"),
        ("a: [", "not valid YAML"),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read(text)
    assert caught.value.message.startswith("mine.yaml: ")
