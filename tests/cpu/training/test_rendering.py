"""The chat template, and which tokens are answers."""

from __future__ import annotations

import random

import pytest
from jinja2.exceptions import TemplateError
from tokenizers import Tokenizer

from training.tiny.batches import draw_conversation
from training.tiny.conversation import Conversation, Split
from training.tiny.data.tools import tool_conversation, tool_session
from training.tiny.rendering import encode, render, segments
from training.tiny.shape import SPECIAL_TOKENS

DRAWS = 200


@pytest.fixture(params=range(4))
def conversations(request: pytest.FixtureRequest) -> list[Conversation]:
    draw = random.Random(f"rendering/{request.param}")
    return [draw_conversation(draw) for _ in range(DRAWS // 4)]


def test_an_answer_follows_what_a_server_would_send(conversations: list[Conversation]) -> None:
    """Every answer is the text between two renderings: with the generation prompt, and without the
    rest of the conversation."""
    for conversation in conversations:
        parts = segments(conversation)
        before = ""
        last_query = max(
            i for i, message in enumerate(conversation.messages) if message["role"] == "user"
        )
        turns = [
            i
            for i, message in enumerate(conversation.messages)
            if i > last_query and message["role"] == "assistant"
        ]
        assert [answer for _, answer in parts] == [False, True] * len(turns)
        for turn, (prompt, _), (answer, _) in zip(turns, parts[::2], parts[1::2], strict=True):
            assert before + prompt == render(conversation, num_messages=turn)
            before += prompt + answer
            assert answer.endswith("<|im_end|>")
        assert before + "\n" == render(conversation)


def test_parts_give_the_tokens_of_the_whole(
    conversations: list[Conversation], tokenizer: Tokenizer
) -> None:
    for conversation in conversations:
        document = encode(conversation, tokenizer)
        whole = tokenizer.encode(render(conversation).removesuffix("\n"), add_special_tokens=False)
        assert document.ids == whole.ids
        assert len(document.is_answer) == len(document.ids)
        assert document.is_answer[-1] and not document.is_answer[0]


def test_the_past_is_learned_as_it_stands() -> None:
    draw = random.Random("session")
    for _ in range(20):
        conversation = tool_session(draw, Split.TRAIN, thinking=draw.random() < 0.5)
        parts = segments(conversation, with_past=True)
        assert "".join(text for text, _ in parts) + "\n" == render(conversation)
        answers = [text for text, answer in parts if answer]
        turns = [m for m in conversation.messages if m["role"] == "assistant"]
        assert len(answers) == len(turns) >= 2
        called = [bool(turn.get("tool_calls")) for turn in turns]
        assert ["<tool_call>" in answer for answer in answers] == called
        assert not any("<think>" in answer for answer in answers)
        assert [text for text, answer in segments(conversation) if answer] == answers[-1:]


def test_a_call_with_its_result_has_two_answers() -> None:
    draw = random.Random("result")
    conversation = tool_conversation(draw, Split.TRAIN, thinking=True, kind="result")
    (_, call, between, answer) = (text for text, _ in segments(conversation))
    assert "<tool_call>" in call and "<tool_call>" not in answer
    assert "<tool_response>\n" in between


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([{"role": "system", "content": "x"}], "needs a user's message"),
        (
            [{"role": "user", "content": "x"}, {"role": "system", "content": "y"}],
            "a system message comes first",
        ),
        ([{"role": "user", "content": "x"}, {"role": "critic", "content": "y"}], "role must be"),
    ],
)
def test_what_the_template_refuses(messages: list[dict[str, str]], message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        render(Conversation(kind="x", messages=tuple(messages)))


def test_reasoning_of_the_past_is_left_out() -> None:
    messages = (
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "secret"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "<think>\nwhy\n</think>\n\nd"},
    )
    text = render(Conversation(kind="x", messages=messages))
    assert "secret" not in text
    assert text.endswith("<|im_start|>assistant\n<think>\nwhy\n</think>\n\nd<|im_end|>\n")


def test_the_special_tokens_are_the_last_ids(tokenizer: Tokenizer) -> None:
    size = tokenizer.get_vocab_size()
    ids = [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS]
    assert ids == list(range(size - len(SPECIAL_TOKENS), size))
    text = "<|im_start|>a<think>b</think><tool_call>"
    shown = tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=True)
    assert shown == "a<think>b</think><tool_call>"
    assert [len(tokenizer.encode(digits).ids) for digits in ("1", "1234")] == [1, 4]
