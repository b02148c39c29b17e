"""Trains `tiny`: tokenizer, model and checkpoint in one command.

On one GPU; a CPU can do a few steps, for tests.

python -m training.tiny.train --books FOLDER --out FOLDER
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import nn
from torch.utils.data import DataLoader, Subset

from training.tiny.batch import Batch
from training.tiny.batches import PackedRows, draw_conversation
from training.tiny.conversation import Split
from training.tiny.data.prose import read_books
from training.tiny.export import export
from training.tiny.held_out import HeldOut
from training.tiny.losses import Losses
from training.tiny.model import Tiny
from training.tiny.muon import make_optimizers
from training.tiny.rendering import render
from training.tiny.shape import Shape
from training.tiny.step import EagerStep, LossesAndGradients, RecordedStep
from training.tiny.tokenizer import train_tokenizer

WARMUP_STEPS = 200
# A run that has learnt so little by then has gone astray, and learns no better: seen once in eight,
# with 60 steps of warm-up (4.1 nats at step 400, where the others had 1.1; no NaN).
ASTRAY_STEP, ASTRAY_NATS = 320, 3.0
# The rate falls linearly to zero over this last part.
DECAY_SHARE = 0.5
MATRIX_LR = 0.02
ADAM_LR = 0.003
GRADIENT_NORM = 1.0
_TOKENIZER_CONVERSATIONS = 30_000


def main() -> None:
    arguments = _parse()
    torch.manual_seed(arguments.seed)
    device = torch.device(arguments.device)
    started = time.monotonic()
    tokenizer = _tokenizer(arguments)
    print(f"tokenizer: {tokenizer.get_vocab_size()} entries, {time.monotonic() - started:.0f} s")
    shape = Shape(vocab_size=arguments.vocab_size)
    model = Tiny(shape).to(device)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"model: {num_parameters:,} parameters on {device}")
    trainer = Trainer(model, arguments, device)
    if arguments.resume and trainer.checkpoint.is_file():
        trainer.load()
        print(f"resumed at step {trainer.step}")
    held_out = HeldOut(
        tokenizer,
        arguments.books,
        num_documents=arguments.held_out,
        row_tokens=arguments.row_tokens,
        seed=0,
    )
    last = min(arguments.steps, arguments.stop_at or arguments.steps)
    clock = time.monotonic()
    for batch in _batches(tokenizer, arguments, range(trainer.step, last)):
        losses = trainer.train(batch.to(device))
        if trainer.step == ASTRAY_STEP:
            check_learning(losses)
        if trainer.step % arguments.print_every == 0:
            check_finite(losses, trainer.step)
            elapsed, clock = time.monotonic() - clock, time.monotonic()
            rate = arguments.print_every * batch.ids.numel() / elapsed
            drafts = " ".join(f"{x:.3f}" for x in losses.drafts.tolist())
            print(
                f"step {trainer.step} text {losses.text:.3f} drafts {drafts} "
                f"balance {losses.balance:.2f} {rate / 1000:.0f}k tok/s "
                f"{time.monotonic() - started:.0f} s",
                flush=True,
            )
        if trainer.step % arguments.evaluate_every == 0 and trainer.step < last:
            print(_line(trainer.scores(held_out)), flush=True)
            clock = time.monotonic()
    trainer.save()
    export(model, tokenizer, arguments.out / "tiny")
    print(_line(trainer.scores(held_out)))
    print(f"done at step {trainer.step} after {time.monotonic() - started:.0f} s")


def check_learning(losses: Losses) -> None:
    """Raise `RuntimeError` for a run that has gone astray. Waits for the device."""
    if losses.text > ASTRAY_NATS:
        raise RuntimeError(
            f"the loss of step {ASTRAY_STEP} is {losses.text:.2f} nats a token, not below "
            f"{ASTRAY_NATS}: this run has gone astray; begin again with another --seed"
        )


def check_finite(losses: Losses, step: int) -> None:
    """Raise `FloatingPointError`: a NaN is in all weights one step later. Waits for the device."""
    if not torch.isfinite(losses.total):
        raise FloatingPointError(f"the loss of step {step} is {float(losses.total)}")


class Trainer:
    """One model, its optimisers and how far they are. `save` and `load` keep all of it."""

    def __init__(self, model: Tiny, arguments: argparse.Namespace, device: torch.device) -> None:
        self.model, self.step = model, 0
        self.checkpoint: Path = arguments.out / "checkpoint.pt"
        self._num_steps: int = arguments.steps
        self._device = device
        self._optimizers = make_optimizers(model, matrix_lr=MATRIX_LR, adam_lr=ADAM_LR)
        self._losses: LossesAndGradients | None = None

    def train(self, batch: Batch) -> Losses:
        if self._losses is None:
            is_cuda = self._device.type == "cuda"
            self._losses = RecordedStep(self.model, batch) if is_cuda else EagerStep(self.model)
        losses = self._losses(batch)
        nn.utils.clip_grad_norm_(self.model.parameters(), GRADIENT_NORM)
        rate = self._rate()
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * group["peak_lr"]
            optimizer.step()
        self.step += 1
        return losses

    def scores(self, held_out: HeldOut) -> dict[str, float]:
        is_cuda = self._device.type == "cuda"
        # Eagerly: documents of each length would be compiled anew.
        with (
            torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=is_cuda),
            torch.compiler.set_stance("force_eager"),
        ):
            return held_out.scores(self.model, self._device)

    def save(self) -> None:
        state = {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
        }
        part = self.checkpoint.with_suffix(".part")
        torch.save(state, part)
        os.replace(part, self.checkpoint)

    def load(self) -> None:
        state = torch.load(self.checkpoint, map_location=self._device, weights_only=True)
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)

    def _rate(self) -> float:
        warmup = (self.step + 1) / WARMUP_STEPS
        left = (self._num_steps - self.step) / (DECAY_SHARE * self._num_steps)
        return min(1.0, warmup, left)


def _line(scores: dict[str, float]) -> str:
    return "held out: " + ", ".join(f"{name} {score:.3f}" for name, score in scores.items())


def _batches(
    tokenizer: Tokenizer, arguments: argparse.Namespace, numbers: range
) -> Iterator[Batch]:
    rows = PackedRows(
        tokenizer,
        arguments.books,
        seed=arguments.seed,
        num_batches=arguments.steps,
        num_rows=arguments.rows,
        row_tokens=arguments.row_tokens,
    )
    yield from DataLoader(
        Subset(rows, numbers),
        batch_size=None,
        num_workers=arguments.workers,
        prefetch_factor=4 if arguments.workers else None,
        pin_memory=arguments.device.startswith("cuda"),
    )


def _tokenizer(arguments: argparse.Namespace) -> Tokenizer:
    """That of an earlier run in the same folder, else a new one."""
    path = arguments.out / "tokenizer.json"
    if path.is_file():
        return Tokenizer.from_file(str(path))
    draw = random.Random(f"tokenizer/{arguments.seed}")
    chats = (render(draw_conversation(draw)) for _ in range(_TOKENIZER_CONVERSATIONS))
    tokenizer = train_tokenizer(
        [*read_books(arguments.books, Split.TRAIN), *chats], arguments.vocab_size
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))
    return tokenizer


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the built-in model tiny.")
    parser.add_argument("--books", type=Path, required=True, help="folder of the English books")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--stop-at", type=int, help="end here, to be resumed")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--row-tokens", type=int, default=1024, help="a multiple of 64")
    parser.add_argument("--vocab-size", type=int, default=4096)
    parser.add_argument("--held-out", type=int, default=256, help="documents of each kind")
    parser.add_argument("--print-every", type=int, default=50)
    parser.add_argument("--evaluate-every", type=int, default=4000)
    parser.add_argument("--workers", type=int, default=max((os.cpu_count() or 1) - 2, 0))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    if arguments.row_tokens % 64:
        parser.error("--row-tokens must be a multiple of 64")
    return arguments


if __name__ == "__main__":
    main()
