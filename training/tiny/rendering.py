"""Conversations to token ids, and which of those the model is to learn to write."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer
from transformers.utils.chat_template_utils import _compile_jinja_template

from training.tiny.conversation import Conversation

TEMPLATE = Path(__file__).with_name("chat_template.jinja")
_TURN, _END = "<|im_start|>assistant\n", "<|im_end|>"


@dataclass(frozen=True, slots=True)
class Document:
    """`ids`, and for each of them whether an answer of ours wrote it."""

    ids: list[int]
    is_answer: list[bool]


def render(conversation: Conversation, *, num_messages: int | None = None) -> str:
    """The whole text; with `num_messages` that of the first ones and the generation prompt."""
    return str(
        _template().render(
            messages=conversation.messages[:num_messages],
            tools=list(conversation.tools),
            add_generation_prompt=num_messages is not None,
            enable_thinking=conversation.thinking,
        )
    )


def segments(conversation: Conversation, *, with_past: bool = False) -> list[tuple[str, bool]]:
    """The text in parts, each with whether it is an answer. Answers are the assistant's turns after
    the last user's message, from the end of the generation prompt through `<|im_end|>`: what a
    server's model writes. `with_past`, so are earlier turns, which stand there without the thinking
    that a generation prompt begins: no server asks for them so, but they show the same calls."""
    text = render(conversation)
    last_query = max(
        i for i, message in enumerate(conversation.messages) if message["role"] == "user"
    )
    num_earlier = sum(m["role"] == "assistant" for m in conversation.messages[:last_query])
    prompt_end = _TURN + ("<think>\n" if conversation.thinking else "<think>\n\n</think>\n\n")
    parts = []
    head, *turns = text.split(_TURN)
    for number, turn in enumerate(turns):
        turn = _TURN + turn
        is_past = number < num_earlier
        if is_past and not with_past:
            head += turn
            continue
        start = _TURN if is_past else prompt_end
        if not turn.startswith(start):
            raise ValueError(f"{turn[:60]!r} does not begin with the generation prompt")
        end = turn.index(_END) + len(_END)
        parts += [(head + start, False), (turn[len(start) : end], True)]
        head = turn[end:]
    return parts


def encode(
    conversation: Conversation, tokenizer: Tokenizer, *, with_past: bool = False
) -> Document:
    """The tokens of `segments`, which are those of the whole text."""
    ids: list[int] = []
    is_answer: list[bool] = []
    for text, answer in segments(conversation, with_past=with_past):
        tokens = tokenizer.encode(text, add_special_tokens=False).ids
        ids += tokens
        is_answer += [answer] * len(tokens)
    return Document(ids, is_answer)


@cache
def _template():  # type: ignore[no-untyped-def]
    return _compile_jinja_template(TEMPLATE.read_text(encoding="utf-8"))
