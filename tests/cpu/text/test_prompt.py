"""Chat messages in OpenAI's form to prompt text, and what is refused by name (D06, D11)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftmark.core.errors import ConfigError, ModelError, RequestError
from draftmark.text.prompt import ChatTemplate, load_chat_template, plain_messages
from draftmark.text.tokenizer import Tokenizer
from tests.fakes import tokenizer as fakes

TEMPLATE = ChatTemplate(fakes.CHAT_TEMPLATE, "test")
USER = {"role": "user", "content": "hi"}


def _call(arguments: Any) -> dict[str, Any]:
    function = {"name": "weather", "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": function}]}


def test_a_conversation() -> None:
    text = TEMPLATE.render([{"role": "system", "content": "S"}, USER])
    assert text == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert TEMPLATE.render([USER], add_generation_prompt=False).endswith("hi<|im_end|>\n")


def test_what_the_generation_prompt_adds() -> None:
    assert TEMPLATE.generation_prompt() == "<|im_start|>assistant\n"
    thinks = ChatTemplate(
        "{% for m in messages %}{{ bos + m.content }}{% endfor %}"
        "{% if add_generation_prompt %}A:{{ '<think>' if enable_thinking else '' }}{% endif %}",
        "test",
        {"bos": "^"},
    )
    assert thinks.generation_prompt() == "A:"
    assert thinks.generation_prompt({"enable_thinking": True}) == "A:<think>"
    assert thinks.generation_prompt({"enable_thinking": True, "more": "x" * 2000}) == ""


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no') }}",
        "{% if add_generation_prompt %}{{ 'B' }}{% endif %}{{ messages[0].content }}",
        "{{ messages[0].content }}",
    ],
)
def test_a_template_that_does_not_tell_its_generation_prompt(source: str) -> None:
    assert ChatTemplate(source, "test").generation_prompt() == ""


def test_the_final_message_can_be_continued() -> None:
    messages = [USER, {"role": "assistant", "content": "The answer is"}]
    text = TEMPLATE.render(messages, add_generation_prompt=False, continue_final_message=True)
    assert text.endswith("<|im_start|>assistant\nThe answer is")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("x", "x"),
        (None, ""),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
    ],
)
def test_content_becomes_a_string(content: Any, text: str) -> None:
    assert plain_messages([{"role": "user", "content": content}])[0]["content"] == text
    assert "None" not in TEMPLATE.render([{"role": "user", "content": content}])


@pytest.mark.parametrize(
    ("arguments", "rendered"),
    [
        ('{"city":"Oslo"}', "[weather city=Oslo]"),
        ({"city": "Oslo"}, "[weather city=Oslo]"),
        ("", "[weather]"),
        ("{}", "[weather]"),
        (None, "[weather]"),
    ],
)
def test_call_arguments_reach_the_template_as_a_mapping(arguments: Any, rendered: str) -> None:
    text = TEMPLATE.render([USER, _call(arguments), {"role": "tool", "content": "9 C"}, USER])
    assert f"assistant\n{rendered}<|im_end|>" in text
    assert "None" not in text


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ([{"content": "x"}], "messages[0].role"),
        ([USER, {"role": "wizard", "content": "x"}], "messages[1].role"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": 7}], "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}],
            "messages[0].content[1]",
        ),
        (
            [{"role": "user", "content": [{"type": "text", "text": 1}]}],
            "messages[0].content[0].text",
        ),
        ([USER, _call("{")], "messages[1].tool_calls[0].function.arguments"),
        ([USER, _call("[1]")], "messages[1].tool_calls[0].function.arguments"),
        ([USER, _call(3)], "messages[1].tool_calls[0].function.arguments"),
        (
            [{"role": "assistant", "tool_calls": [{"function": {}}]}],
            "messages[0].tool_calls[0].function.name",
        ),
        ([{"role": "assistant", "tool_calls": "x"}], "messages[0].tool_calls"),
        ([{"role": "assistant", "function_call": {}}], "messages[0].function_call"),
    ],
)
def test_refusals_name_the_field(messages: list[dict[str, Any]], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        TEMPLATE.render(messages)
    assert caught.value.param == param
    assert caught.value.status == 400
    assert param in caught.value.message


def test_the_developer_role_is_system_where_the_template_knows_no_other() -> None:
    message = {"role": "developer", "content": "x"}
    assert plain_messages([message])[0]["role"] == "system"
    assert plain_messages([message], has_developer_role=True)[0]["role"] == "developer"


@pytest.mark.parametrize(
    "source",
    ["{{ raise_exception('no\nsystem') }}", "{{ messages.a.b }}", "{{ 'x' + 1 }}", "{{ 1 // 0 }}"],
)
def test_a_template_that_refuses_is_the_clients_400(source: str) -> None:
    with pytest.raises(RequestError) as caught:
        ChatTemplate(source, "test").render([USER])
    assert "\n" not in caught.value.message


def test_the_rendering_environment_is_the_one_templates_expect() -> None:
    source = (
        "{% for m in messages %}\n  {% if loop.index == 2 %}{% break %}{% endif %}\n"
        "{{ m | tojson }}{{ strftime_now('%Y') | length }}{{ eos_token }}{{ extra }}\n{% endfor %}"
    )
    template = ChatTemplate(source, "test", {"eos_token": "<e>"})
    text = template.render([{"role": "user", "content": "<é&'>"}, USER], variables={"extra": 5})
    assert text == """{"role": "user", "content": "<é&'>"}4<e>5\n"""


@pytest.mark.parametrize("name", ["messages", "tools", "chat_template", "conversations"])
def test_template_variables_cannot_replace_the_request(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        TEMPLATE.render([USER], variables={name: []})
    assert caught.value.param == "chat_template_kwargs"


def test_continuation_needs_something_to_continue() -> None:
    for messages, generation in (([USER], True), ([{"role": "assistant", "content": ""}], False)):
        with pytest.raises(RequestError) as caught:
            TEMPLATE.render(messages, add_generation_prompt=generation, continue_final_message=True)
        assert caught.value.param == "continue_final_message"


def test_where_the_template_comes_from(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(fakes.write_model_dir(tmp_path))
    found = load_chat_template(tmp_path, tokenizer)
    assert found is not None
    assert (found.source, found.origin) == (fakes.CHAT_TEMPLATE, "tokenizer_config.json")
    (tmp_path / "chat_template.jinja").write_text("JINJA")
    found = load_chat_template(tmp_path, tokenizer)
    assert found is not None
    assert found.source == "JINJA"
    (tmp_path / "mine.jinja").write_text("MINE")
    found = load_chat_template(tmp_path, tokenizer, override=str(tmp_path / "mine.jinja"))
    assert found is not None
    assert found.source == "MINE"


def test_named_templates_and_none(tmp_path: Path) -> None:
    fakes.write_model_dir(tmp_path)
    named = [{"name": "rag", "template": "R"}, {"name": "default", "template": "D"}]
    for setting, expected in ((named, "D"), (None, None), (named[:1], None)):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": setting}))
        found = load_chat_template(tmp_path, Tokenizer.load(tmp_path))
        assert (found and found.source) == expected


def test_a_broken_template_is_one_line_at_start(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(fakes.write_model_dir(tmp_path))
    (tmp_path / "chat_template.jinja").write_text("{% for %}")
    with pytest.raises(ModelError, match=r"chat_template\.jinja does not compile"):
        load_chat_template(tmp_path, tokenizer)
    with pytest.raises(ConfigError, match="cannot read the chat template"):
        load_chat_template(tmp_path, tokenizer, override=str(tmp_path / "absent"))
