"""What `tiny` can do, measured through the server on held-out material: the table of its card.

python -m training.tiny.evaluate MODEL --books FOLDER [--count N] [--url URL] [--json FILE] [--card]

Arithmetic goes through /v1/chat/completions. Conversations with tools are rendered here and go
through /v1/completions. All is greedy but one of the two columns of free generation. The accepted
length of drafts is counted by the training's own model, on the answers that the server gave.
`--card` writes the model's card, this table in it. The tests' gates ask the same `TASKS` and read
the same `WANTED`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import torch
from tokenizers import Tokenizer

from training.tiny.card import Measured, write_card
from training.tiny.conversation import Conversation, Split
from training.tiny.data.arithmetic import arithmetic_conversation
from training.tiny.data.prose import draw_prose, read_books
from training.tiny.data.tools import tool_conversation
from training.tiny.export import load
from training.tiny.grading import (
    final_number,
    has_call,
    is_exactly_called,
    looped_share,
    wanted_calls,
)
from training.tiny.held_out import padded
from training.tiny.losses import draft_agreement
from training.tiny.model import Tiny
from training.tiny.rendering import Document, segments

_SEED = "evaluation"
_IN_FLIGHT = 32
_MAX_TOKENS = 400
_PROSE_TOKENS = 512
_FREE_TOKENS = 256
# What the model must reach.
WANTED = {
    "arithmetic exact, thinking": 0.90,
    "arithmetic exact, no thinking": 0.90,
    "calls exactly right, thinking": 0.95,
    "calls exactly right, no thinking": 0.95,
    "no call where none fits, thinking": 0.90,
    "no call where none fits, no thinking": 0.90,
    "thinking off respected": 0.98,
    "accepted length at k=3, chat": 2.6,
    "accepted length at k=3, unseen prose": 1.7,
}

IsRight = Callable[[Conversation, str], bool]


@dataclass(frozen=True, slots=True)
class Task:
    """Conversations of one kind, answered by the first assistant turn after the last question."""

    name: str
    make: Callable[..., Conversation]
    is_right: IsRight
    thinking: bool

    def draw(self, count: int) -> list[Conversation]:
        """Held-out ones, the same at every call."""
        draw = random.Random(f"{_SEED}/{self.name}")
        return [self.make(draw, Split.HELD_OUT, thinking=self.thinking) for _ in range(count)]


@dataclass(slots=True)
class Outcome:
    """`answered` are documents of the prompt and what the server wrote."""

    shares: dict[str, float] = field(default_factory=dict)
    answered: list[Document] = field(default_factory=list)
    unthinking: list[str] = field(default_factory=list)


def _few(count: int) -> int:
    """How many documents are enough where each has hundreds of places that count."""
    return max(count // 5, 1)


def is_unthinking(text: str) -> bool:
    """Whether an answer without thinking kept to that."""
    return not re.search("</?think>", text)


def _right_number(conversation: Conversation, text: str) -> bool:
    return final_number(text) == final_number(str(conversation.messages[-1]["content"]))


def _right_calls(conversation: Conversation, text: str) -> bool:
    asked = next(message for message in conversation.messages[::-1] if "tool_calls" in message)
    return is_exactly_called(text, wanted_calls(asked))


def _no_call(conversation: Conversation, text: str) -> bool:
    return not has_call(text) and bool(text.rpartition("</think>")[2].strip())


TASKS = tuple(
    Task(f"{name}, {'thinking' if thinking else 'no thinking'}", make, is_right, thinking)
    for name, make, is_right in (
        ("arithmetic exact", arithmetic_conversation, _right_number),
        ("calls exactly right", partial(tool_conversation, kind="call"), _right_calls),
        ("two calls exactly right", partial(tool_conversation, kind="calls"), _right_calls),
        ("no call where none fits", partial(tool_conversation, kind="no_fit"), _no_call),
    )
    for thinking in (True, False)
)


async def measure(
    url: str, model: Tiny, tokenizer: Tokenizer, books: Path, count: int
) -> dict[str, float]:
    """Every figure of the table by its name."""
    outcome = Outcome()
    async with httpx.AsyncClient(base_url=url, timeout=600) as client:
        server = Asker(client)
        for task in TASKS:
            await _run(task, count, server, tokenizer, outcome)
            print(f"{task.name}: {outcome.shares[task.name]:.3f}", flush=True)
        free = await _free_generation(server, tokenizer, books, _few(count))
    respected = [is_unthinking(text) for text in outcome.unthinking]
    return outcome.shares | {
        "thinking off respected": sum(respected) / len(respected),
        "accepted length at k=3, chat": _accepted_length(model, outcome.answered),
        "accepted length at k=3, unseen prose": _accepted_length(
            model, _prose(tokenizer, books, _few(count))
        ),
        **free,
    }


class Asker:
    """Asks a server of `tiny`, which `client` reaches, for some answers at a time."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client, self._slots = client, asyncio.Semaphore(_IN_FLIGHT)

    async def answers(self, conversations: Sequence[Conversation]) -> list[str]:
        """Greedily, the first assistant turn after each one's last question."""
        return await asyncio.gather(
            *(
                self.complete(segments(conversation)[0][0])
                if conversation.tools
                else self._chat(conversation)
                for conversation in conversations
            )
        )

    async def _chat(self, conversation: Conversation) -> str:
        body = {
            "messages": list(conversation.messages[:-1]),
            "chat_template_kwargs": {"enable_thinking": conversation.thinking},
            "max_tokens": _MAX_TOKENS,
            "temperature": 0,
        }
        choice = await self._ask("/v1/chat/completions", body)
        return str(choice["message"]["content"])

    async def complete(self, prompt: str, **fields: object) -> str:
        body = {"prompt": prompt, "max_tokens": _MAX_TOKENS, "temperature": 0, **fields}
        return str((await self._ask("/v1/completions", body))["text"])

    async def _ask(self, path: str, body: dict[str, object]) -> dict[str, Any]:
        async with self._slots:
            response = await self._client.post(path, json={"model": "tiny", **body})
        response.raise_for_status()
        choice: dict[str, Any] = response.json()["choices"][0]
        return choice


async def _run(
    task: Task, count: int, server: Asker, tokenizer: Tokenizer, outcome: Outcome
) -> None:
    made = task.draw(count)
    texts = await server.answers(made)
    right = [task.is_right(*pair) for pair in zip(made, texts, strict=True)]
    outcome.shares[task.name] = sum(right) / count
    if not task.thinking:
        outcome.unthinking += texts
    outcome.answered += [
        _document(tokenizer, segments(conversation)[0][0], text + "<|im_end|>")
        for conversation, text in list(zip(made, texts, strict=True))[: _few(count)]
    ]


def _document(tokenizer: Tokenizer, prompt: str, answer: str) -> Document:
    given, written = (
        tokenizer.encode(text, add_special_tokens=False).ids for text in (prompt, answer)
    )
    return Document(given + written, [False] * len(given) + [True] * len(written))


def _prose(tokenizer: Tokenizer, books: Path, count: int) -> list[Document]:
    draw = random.Random(f"{_SEED}/prose")
    texts = read_books(books, Split.HELD_OUT)
    pieces = (draw_prose(draw, texts, 8 * _PROSE_TOKENS) for _ in range(count))
    ids = [tokenizer.encode(piece, add_special_tokens=False).ids for piece in pieces]
    return [Document(piece[:_PROSE_TOKENS], [True] * len(piece[:_PROSE_TOKENS])) for piece in ids]


@torch.no_grad()
def _accepted_length(model: Tiny, documents: list[Document]) -> float:
    """Tokens a round of DRAFT_STEPS drafts yields on these texts: the accepted ones and one."""
    ordered = sorted(documents, key=lambda document: len(document.ids))
    accepted = rounds = 0
    for start in range(0, len(ordered), 16):
        counts, num_rounds = draft_agreement(model, padded(ordered[start : start + 16]))
        accepted, rounds = accepted + int(counts.sum()), rounds + int(num_rounds)
    return 1 + accepted / rounds


async def _free_generation(
    server: Asker, tokenizer: Tokenizer, books: Path, count: int
) -> dict[str, float]:
    """Shares of looped tokens where prose is continued, greedily and sampled."""
    prompts = [tokenizer.decode(document.ids[:64]) for document in _prose(tokenizer, books, count)]
    shares = {}
    for name, temperature in (("greedy", 0.0), ("at temperature 0.8", 0.8)):
        texts = await asyncio.gather(
            *(
                server.complete(
                    prompt, max_tokens=_FREE_TOKENS, temperature=temperature, seed=index
                )
                for index, prompt in enumerate(prompts)
            )
        )
        looped = [looped_share(tokenizer.encode(text).ids) for text in texts]
        shares[f"looped share of free prose, {name}"] = sum(looped) / len(looped)
    return shares


@contextmanager
def serving(model: str) -> Iterator[str]:
    """The address of a server of ours for the time of the block."""
    command = [sys.executable, "-m", "draftmark.cli.main", "serve", model, "--port", "0"]
    process = subprocess.Popen(
        [*command, "--served-model-name", "tiny"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r" at (http://[^/]+)/v1", line):
                yield found[1]
                return
        raise RuntimeError(f"the server ended with status {process.wait()}")
    finally:
        process.terminate()
        process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure tiny on held-out material.")
    parser.add_argument("model", type=Path, help="folder of the exported checkpoint")
    parser.add_argument("--books", type=Path, required=True)
    parser.add_argument("--count", type=int, default=300, help="conversations of each kind")
    parser.add_argument("--url", help="a server of this model, instead of one started here")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--card", action="store_true", help="write README.md beside the weights")
    arguments = parser.parse_args()
    model, tokenizer = load(arguments.model)

    with serving(str(arguments.model)) if not arguments.url else nullcontext(arguments.url) as url:
        figures = asyncio.run(measure(url, model, tokenizer, arguments.books, arguments.count))
        dtype = httpx.get(f"{url}/v1/engine/config").json()["model"]["dtype"]["value"]
    for name, value in figures.items():
        wanted = WANTED.get(name)
        target = "" if wanted is None else f"  wanted {wanted}"
        missed = "  MISSED" if wanted is not None and value < wanted else ""
        print(f"{name:<45} {value:.3f}{target}{missed}")
    if arguments.card:
        is_default = arguments.count == parser.get_default("count")
        measured = Measured(
            figures=figures,
            wanted=WANTED,
            count=arguments.count,
            few=_few(arguments.count),
            dtype=dtype,
            option="" if is_default else f" --count {arguments.count}",
        )
        write_card(arguments.model, measured)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
