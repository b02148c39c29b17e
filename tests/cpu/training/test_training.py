"""Batches that depend on their number alone, and a few steps of training with a pause between."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from tests.fakes.small_tiny import SMALL
from training.tiny import train
from training.tiny.batch import Batch
from training.tiny.batches import PROMPT_WEIGHT, PackedRows
from training.tiny.export import load
from training.tiny.losses import draft_weights
from training.tiny.model import Tiny
from training.tiny.muon import orthogonal


@pytest.fixture(scope="module")
def rows(tokenizer: Tokenizer, books: Path) -> PackedRows:
    return PackedRows(tokenizer, books, seed=1, num_batches=3, num_rows=6, row_tokens=1024)


def test_a_batch_depends_on_its_number_alone(
    rows: PackedRows, tokenizer: Tokenizer, books: Path
) -> None:
    again = PackedRows(tokenizer, books, seed=1, num_batches=9, num_rows=6, row_tokens=1024)
    for one, other in zip(rows[2].tensors(), again[2].tensors(), strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(rows[1].ids, rows[2].ids)


def test_rows_are_filled_with_whole_documents(rows: PackedRows, tokenizer: Tokenizer) -> None:
    batch = rows[0]
    assert all(x.shape == (6, 1024) for x in batch.tensors())
    starts = batch.positions == 0
    assert bool(starts[:, 0].all())
    steps = batch.positions.diff(dim=1)
    assert bool(((steps == 1) | starts[:, 1:]).all())
    assert batch.weights.unique().tolist() == pytest.approx([0, PROMPT_WEIGHT, 1])
    assert bool((batch.weights[starts] == 0).all())
    # What is learned in full is prose, or an answer up to its end.
    end = tokenizer.token_to_id("<|im_end|>")
    ends = (batch.ids == end) & (batch.weights == 1)
    assert int(ends.sum()) >= 6


def test_a_draft_weighs_what_it_foresees() -> None:
    ids = torch.arange(8)[None]
    positions = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2]])
    weights = torch.tensor([[0, 0.1, 1, 1, 1, 0, 0.1, 1]])
    batch = Batch(ids, positions, weights)
    foreseen = {
        0: [0.1, 1, 1, 1, 0, 0.1, 1, 0],
        1: [1, 1, 1, 0, 0, 1, 0],
        2: [1, 1, 0, 0, 0, 0],
        3: [1, 0, 0, 0, 0],
    }
    for ahead, expected in foreseen.items():
        assert draft_weights(batch, ahead)[0].tolist() == pytest.approx(expected)


def test_orthogonal_steps() -> None:
    torch.manual_seed(0)
    for shape in ((3, 32, 96), (2, 96, 32)):
        values = torch.linalg.svdvals(orthogonal(torch.randn(shape)).float())
        assert float(values.min()) > 0.5 and float(values.max()) < 1.3


def make_trainer(folder: Path) -> train.Trainer:
    torch.manual_seed(0)
    arguments = argparse.Namespace(out=folder, steps=3)
    return train.Trainer(Tiny(replace(SMALL, vocab_size=4096)), arguments, torch.device("cpu"))


def test_resumed_training_is_training(rows: PackedRows, tmp_path: Path) -> None:
    """Three steps in one go, and two and one: the same weights bit by bit."""
    batches = [Batch(*(x[:2, :256] for x in rows[number].tensors())) for number in range(3)]
    whole = make_trainer(tmp_path)
    for batch in batches:
        whole.train(batch)
    paused = make_trainer(tmp_path)
    for batch in batches[:2]:
        paused.train(batch)
    paused.save()
    resumed = make_trainer(tmp_path)
    resumed.load()
    assert resumed.step == 2
    resumed.train(batches[2])
    expected = whole.model.state_dict()
    assert any(not torch.equal(x, expected[name]) for name, x in paused.model.state_dict().items())
    for name, tensor in resumed.model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


def test_training_stops_where_a_loss_is_not_finite(rows: PackedRows, tmp_path: Path) -> None:
    batch = Batch(*(x[:2, :256] for x in rows[0].tensors()))
    trainer = make_trainer(tmp_path)
    trainer.model.model.norm.weight.data[3] = torch.nan
    with pytest.raises(FloatingPointError, match="step 1"):
        train.check_finite(trainer.train(batch), trainer.step)


def test_training_learns(rows: PackedRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "WARMUP_STEPS", 60)
    batch = Batch(*(x[:2, :256] for x in rows[0].tensors()))
    trainer = make_trainer(tmp_path)
    trainer.step = 2  # past most of the warm-up's and before the decay's small rates
    losses = []
    for _ in range(6):
        trainer.step = 2
        losses.append(float(trainer.train(batch).text))
    assert losses[-1] < losses[0] - 0.05


@pytest.mark.slow
def test_the_command(
    tmp_path: Path,
    tokenizer: Tokenizer,
    books: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two steps of the whole model on a CPU, and the checkpoint they leave."""
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    words = "--steps 2 --rows 1 --row-tokens 704 --held-out 1 --workers 0 --device cpu"
    given = ["train", "--books", str(books), "--out", str(tmp_path), *words.split()]
    monkeypatch.setattr(sys, "argv", given)
    train.main()
    said = capsys.readouterr().out
    assert "held out: arithmetic 0.000" in said and "done at step 2" in said
    model, _ = load(tmp_path / "tiny")
    assert all(bool(torch.isfinite(x).all()) for x in model.parameters())
