"""A GGUF file becomes a checkpoint that holds what the file holds, and reads like it."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoModelForCausalLM, GPT2Tokenizer, Qwen2Tokenizer

from draftmark.core.errors import ModelError
from draftmark.models import gguf
from draftmark.models.config import describe
from tests.cpu.models.gguf_file import SPECIALS, TEXT, train_bpe, write_gguf

KINDS = (GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.Q8_0)


def convert(source: Path, target: Path) -> Path:
    gguf.convert(source, target, generation={"temperature": 0.2}, progress=lambda *said: None)
    return target


def expected(name: str, weight: torch.Tensor, kind: GGMLQuantizationType) -> torch.Tensor:
    """What the file holds, in bf16. Rows are quantised one by one, so their order is free."""
    if weight.ndim == 1:
        return weight.bfloat16()
    stored = dequantize(quantize(weight.numpy(), kind), kind)
    return torch.from_numpy(stored.reshape(weight.shape)).bfloat16()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arch, tied", [("llama", True), ("llama", False), ("qwen3", True)])
def test_every_weight_is_the_files(
    tmp_path: Path, arch: str, tied: bool, kind: GGMLQuantizationType
) -> None:
    model = write_gguf(tmp_path / "m.gguf", arch=arch, tied=tied, kind=kind)
    target = convert(tmp_path / "m.gguf", tmp_path / "out")
    found = load_file(target / "model.safetensors")
    wanted = {name: expected(name, weight, kind) for name, weight in model.state_dict().items()}
    if tied:
        del wanted["lm_head.weight"]
    assert set(found) == set(wanted)
    for name, weight in wanted.items():
        assert torch.equal(found[name], weight), name


@pytest.mark.parametrize("arch, pre", [("llama", "smollm"), ("qwen3", "qwen2")])
def test_transformers_reads_it_as_the_model_it_was(tmp_path: Path, arch: str, pre: str) -> None:
    model = write_gguf(tmp_path / "m.gguf", arch=arch, pre=pre)
    target = convert(tmp_path / "m.gguf", tmp_path / "out")
    ids = torch.arange(40)[None]
    read = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
    with torch.inference_mode():
        rounded = {name: value.bfloat16().float() for name, value in model.state_dict().items()}
        model.load_state_dict(rounded)
        assert torch.equal(read(ids).logits, model(ids).logits)
    facts = describe(target).facts
    assert facts.model_type == arch and facts.eos_ids == (2,)
    generation = json.loads((target / "generation_config.json").read_text())
    assert generation["temperature"] == 0.2 and generation["eos_token_id"] == [2]
    template = json.loads((target / "tokenizer_config.json").read_text())["chat_template"]
    assert template == "{{ messages[0].content }}"


# -- the tokenizer --------------------------------------------------------------------------------


def judge(pre: str) -> Tokenizer:
    """The same vocabulary in the tokenizer that transformers builds for the family."""
    vocab, merges = train_bpe()
    make = Qwen2Tokenizer if pre == "qwen2" else GPT2Tokenizer
    tokenizer = make(vocab=vocab, merges=merges).backend_tokenizer
    if pre == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    tokenizer.add_special_tokens(SPECIALS)
    return tokenizer


@pytest.fixture(scope="module", params=["gpt-2", "smollm", "qwen2"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tokenizer, Tokenizer]:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_gguf(folder / "m.gguf", pre=request.param)
    target = convert(folder / "m.gguf", folder / "out")
    return Tokenizer.from_file(str(target / "tokenizer.json")), judge(request.param)


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=60))
def test_it_cuts_any_text_as_the_familys_own_does(
    both: tuple[Tokenizer, Tokenizer], text: str
) -> None:
    ours, theirs = both
    ids = ours.encode(text, add_special_tokens=False).ids
    assert ids == theirs.encode(text, add_special_tokens=False).ids
    assert ours.decode(ids, skip_special_tokens=False) == theirs.decode(
        ids, skip_special_tokens=False
    )


def test_it_cuts_real_text_and_whole_special_tokens(both: tuple[Tokenizer, Tokenizer]) -> None:
    ours, theirs = both
    text = f"{SPECIALS[1]}user\n{TEXT}{SPECIALS[2]} 2026 1234567\n{SPECIALS[0]}"
    ids = ours.encode(text, add_special_tokens=False).ids
    assert ids == theirs.encode(text, add_special_tokens=False).ids
    assert ids[0] == 1 and ids[-1] == 0 and ids.count(2) == 1
    assert ours.decode(ids, skip_special_tokens=False) == text


# -- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"pre": "deepseek-llm"}, "pre-tokenizer 'deepseek-llm' is not known; known: gpt-2"),
        ({"changes": {"tokenizer.ggml.model": "llama"}}, "tokenizer is 'llama'; only gpt2"),
        ({"changes": {"llama.rope.scaling.type": "longrope"}}, "'longrope' is not built"),
        ({"extra": {"blk.0.ssm_a": np.zeros(4, np.float32)}}, "blk.0.ssm_a that is not built"),
        (
            {"extra": {"blk.0.attn_output.bias": np.full(4, np.nan, np.float32)}},
            "blk.0.attn_output.bias has non-finite values",
        ),
        (
            {"extra": {"blk.0.attn_q.bias": np.zeros(4, np.float32)}},
            "blk.0.attn_q.bias has 4 rows, which are not those of 4 heads",
        ),
        ({"extra": {"rope_freqs.weight": np.full(8, 3.0, np.float32)}}, "no known llama3 scaling"),
    ],
)
def test_what_is_not_built_is_refused_by_name(
    tmp_path: Path, options: dict[str, object], reason: str
) -> None:
    write_gguf(tmp_path / "m.gguf", **options)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=reason):
        convert(tmp_path / "m.gguf", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.gguf"]


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9])
def test_a_file_that_is_not_whole_is_refused_in_one_line(tmp_path: Path, share: float) -> None:
    source = tmp_path / "m.gguf"
    write_gguf(source)
    source.write_bytes(source.read_bytes()[: int(share * source.stat().st_size)])
    with pytest.raises(ModelError, match=r"not a whole GGUF file|cannot be read") as caught:
        convert(source, tmp_path / "out")
    assert "\n" not in caught.value.message
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


def test_a_full_disk_is_seen_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_gguf(tmp_path / "m.gguf")
    usage = namedtuple("usage", "total used free")(10**9, 10**9, 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(ModelError, match=r"converting needs 0\.00 GB .*, 0\.00 GB are free"):
        convert(tmp_path / "m.gguf", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


def test_who_comes_second_leaves_the_first_ones_work(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf")
    target = convert(tmp_path / "m.gguf", tmp_path / "out")
    (target / "mark").touch()
    convert(tmp_path / "m.gguf", target)
    assert (target / "mark").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.gguf", "out"]
