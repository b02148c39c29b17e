"""The module that is trained: rows of several documents, drafts, and the checkpoint it becomes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.fakes.small_tiny import SMALL
from training.tiny.export import MAX_BYTES, MAX_SHARD_BYTES, export, load
from training.tiny.losses import DRAFT_STEPS
from training.tiny.model import Rows, Tiny
from training.tiny.shape import Shape


def scatter(model: Tiny) -> Tiny:
    """Weights as after some training: at first each layer is the identity."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


@pytest.fixture
def small() -> Tiny:
    torch.manual_seed(0)
    return scatter(Tiny(SMALL).double())


def draw_ids(length: int) -> Tensor:
    torch.manual_seed(2)
    return torch.randint(0, SMALL.vocab_size, (1, length))


def positions_of(*lengths: int) -> Tensor:
    return torch.cat([torch.arange(length) for length in lengths])[None]


@torch.no_grad()
def test_documents_of_a_row_do_not_see_each_other(small: Tiny) -> None:
    ids = draw_ids(256)
    hidden, _ = small(ids, Rows(positions_of(90, 1, 101, 64), SMALL))
    drafts, _ = small.drafts(ids, hidden, Rows(positions_of(90, 1, 101, 64), SMALL), DRAFT_STEPS)
    alone_ids = torch.cat([ids[:, 91:192], ids[:, :27]], dim=1)
    rows = Rows(positions_of(128), SMALL)
    alone, _ = small(alone_ids, rows)
    alone_drafts, _ = small.drafts(alone_ids, alone, rows, DRAFT_STEPS)
    torch.testing.assert_close(hidden[:, 91:192], alone[:, :101], rtol=0, atol=1e-10)
    for ahead, (one, other) in enumerate(zip(drafts, alone_drafts, strict=True), start=1):
        length = 101 - ahead
        torch.testing.assert_close(one[:, 91 : 91 + length], other[:, :length], rtol=0, atol=1e-10)


@torch.no_grad()
def test_the_future_is_not_seen(small: Tiny) -> None:
    ids = draw_ids(128)
    rows = Rows(positions_of(128), SMALL)
    changed = ids.clone()
    changed[:, 80:] = (changed[:, 80:] + 1) % SMALL.vocab_size
    one, other = (small(x, rows)[0] for x in (ids, changed))
    assert torch.equal(one[:, :80], other[:, :80])
    assert not torch.equal(one[:, 80], other[:, 80])


@torch.no_grad()
@pytest.mark.parametrize("place", [0, 1, 40])
def test_drafts_are_those_of_a_chain(small: Tiny, place: int) -> None:
    """As a server runs them: the head reads target states up to a place, then its own, one token
    further each time, over one growing cache."""
    ids = draw_ids(64)
    rows = Rows(positions_of(64), SMALL)
    hidden, _ = small(ids, rows)
    unrolled, _ = small.drafts(ids, hidden, rows, DRAFT_STEPS)
    mtp, layer = small.mtp, small.mtp.layers[0]

    def enter(token: Tensor, state: Tensor) -> Tensor:
        embedded = mtp.pre_fc_norm_embedding(small.model.embed_tokens(token))
        return mtp.fc(torch.cat([embedded, mtp.pre_fc_norm_hidden(state)], dim=-1))

    entered = enter(ids[:, 1 : place + 2], hidden[:, : place + 1])
    for step in range(DRAFT_STEPS):
        size = entered.shape[1]
        out, _ = layer(entered, Rows(positions_of(size), SMALL))
        state = mtp.norm(out[:, -1:])
        torch.testing.assert_close(
            unrolled[step][:, place : place + 1], state, rtol=0, atol=1e-10, msg=str(step)
        )
        entered = torch.cat([entered, enter(ids[:, size + 1 : size + 2], state)], dim=1)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("export")
    torch.manual_seed(0)
    export(scatter(Tiny(Shape())), tokenizer, folder)
    return folder


def test_an_export_keeps_to_its_sizes(exported: Path) -> None:
    sizes = {path.name: path.stat().st_size for path in exported.iterdir()}
    assert sum(sizes.values()) <= MAX_BYTES
    assert max(size for name, size in sizes.items() if "safetensors" in name) <= MAX_SHARD_BYTES
    index = json.loads((exported / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) <= set(sizes)
    model, _ = load(exported)
    assert sum(parameter.numel() for parameter in model.parameters()) <= 12_000_000


def test_what_is_not_finite_is_not_exported(tmp_path: Path, tokenizer: Tokenizer) -> None:
    model = Tiny(SMALL)
    model.model.layers[1].linear_attn.A_log.data[0] = torch.inf
    with pytest.raises(ValueError, match=r"layers\.1\.linear_attn\.A_log holds values"):
        export(model, tokenizer, tmp_path)


@torch.no_grad()
def test_transformers_gives_the_same_logits(exported: Path) -> None:
    model, tokenizer = load(exported)
    theirs = AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32)
    wrapped = AutoTokenizer.from_pretrained(exported)
    chat = [{"role": "user", "content": "Tom has 12 apples and buys 7 more."}]
    text = wrapped.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    ids = tokenizer.encode(text * 4).ids
    assert wrapped(text * 4)["input_ids"] == ids
    ids = torch.tensor(ids[: len(ids) // 64 * 64])[None]
    hidden, _ = model(ids, Rows(torch.arange(ids.shape[1])[None], model.shape))
    ours, expected = model.logits(hidden), theirs(ids).logits
    assert float((ours - expected).abs().max() / expected.abs().max()) < 1e-4
    assert torch.equal(ours.argmax(-1), expected.argmax(-1))
