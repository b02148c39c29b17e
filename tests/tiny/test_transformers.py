"""The shipped checkpoint as `transformers` loads it: the same logits, the same greedy tokens."""

from __future__ import annotations

import random

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from draftmark.engine.source import SHIPPED
from tests.cpu.models.one_sequence import Runner
from training.tiny.evaluate import TASKS, Task
from training.tiny.export import MAX_BYTES, MAX_SHARD_BYTES
from training.tiny.rendering import render, segments

MODEL = SHIPPED["tiny"].directory
RELATIVE = 1e-4
NUM_TOKENS = 32


@pytest.fixture(scope="module")
def theirs() -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()


@pytest.mark.parametrize("task", TASKS[:4:3], ids=lambda task: task.name)
@torch.inference_mode()
def test_logits_and_greedy_tokens_are_equal(theirs: PreTrainedModel, task: Task) -> None:
    [made] = task.draw(1)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    prompt = tokenizer(segments(made)[0][0])["input_ids"]
    runner = Runner(MODEL, dtype=torch.float32, context=len(prompt) + NUM_TOKENS)
    logits = runner.feed(prompt)
    expected = theirs(torch.tensor([prompt])).logits[0]
    error = float((logits - expected).abs().max() / expected.abs().max())
    print(f"{len(prompt)} tokens: largest difference {error:.1e} of the largest logit")
    assert error < RELATIVE
    ours = [int(logits[-1].argmax())]
    while len(ours) < NUM_TOKENS:
        ours.append(int(runner.decode(ours[-1])[-1].argmax()))
    written = theirs.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        max_new_tokens=NUM_TOKENS,
        do_sample=False,
    )[0, len(prompt) :].tolist()
    assert ours[: len(written)] == written


def test_the_template_is_that_of_training() -> None:
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    for task in TASKS:
        [made] = task.draw(1)
        text = tokenizer.apply_chat_template(
            list(made.messages),
            tools=list(made.tools) or None,
            tokenize=False,
            enable_thinking=made.thinking,
        )
        assert text == render(made)


def test_every_token_is_one_of_the_models() -> None:
    """Words of any make survive the tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    draw = random.Random(3)
    text = "".join(chr(draw.choice([*range(32, 127), 0xE9, 0x4E2D, 0x1F600])) for _ in range(400))
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_the_files_keep_to_their_sizes() -> None:
    sizes = {path.name: path.stat().st_size for path in MODEL.iterdir()}
    assert sum(sizes.values()) <= MAX_BYTES
    assert max(size for name, size in sizes.items() if "safetensors" in name) <= MAX_SHARD_BYTES
    assert "README.md" in sizes
