"""Chat messages to prompt text, by the checkpoint's own Jinja template.

The renderer is the torch-free one of `transformers.utils`: the sandbox, `tojson`, `raise_exception`
and `strftime_now` are exactly those the template was written against. Messages arrive in OpenAI's
form and are made plain first: text parts joined, null content empty, call arguments as mappings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateError
from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template

from draftmark.core.errors import ConfigError, ModelError, RequestError
from draftmark.text.tokenizer import Tokenizer

# What a template can raise when the messages or variables are not of the shape it expects.
_RENDER_ERRORS = (
    TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
)
# Variables of a client that are longer than this are no key of a cache.
_MAX_KEY_CHARS = 1000
# Arguments of the renderer, which a client's own template variables must not replace.
_RESERVED = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversations",
        "documents",
        "messages",
        "return_assistant_tokens_mask",
        "tools",
    }
)


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A compiled-on-first-use template. `origin` says where `source` came from."""

    source: str
    origin: str
    variables: Mapping[str, str] = field(default_factory=dict)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt text of a conversation in OpenAI's form; raises `RequestError`.

        `variables` are the client's `chat_template_kwargs`.
        """
        plain = plain_messages(messages, has_developer_role="developer" in self.source)
        if continue_final_message:
            _check_continuation(plain, add_generation_prompt=add_generation_prompt)
        for name in variables or {}:
            if name in _RESERVED:
                raise RequestError(
                    f"chat_template_kwargs must not set {name}", param="chat_template_kwargs"
                )
        try:
            result: Any = render_jinja_template(
                [plain],
                chat_template=self.source,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                **{**self.variables, **(variables or {})},
            )
        except _RENDER_ERRORS as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise RequestError(
                f"the chat template refused the messages: {reason[:300]}", param="messages"
            ) from error
        return str(result[0][0])

    def generation_prompt(self, variables: Mapping[str, Any] | None = None) -> str:
        """What `add_generation_prompt` writes after a conversation, found from a short one; "" when
        that cannot be told."""
        given = json.dumps(variables or {}, sort_keys=True)
        if len(given) > _MAX_KEY_CHARS:
            return ""
        return _generation_prompt(self.source, json.dumps(dict(self.variables)), given)

    def history_tokens(
        self,
        ids: Sequence[int],
        text: str,
        tokenizer: Tokenizer,
        variables: Mapping[str, Any] | None = None,
    ) -> int | None:
        """How many of `ids`, the tokens of the prompt `text`, come before its generation prompt;
        None where the prompt does not end with one that can be told from the rest."""
        tail = self.generation_prompt(variables)
        if not tail or not text.endswith(tail):
            return None
        tail_ids = tokenizer.encode(tail, add_special_tokens=False)
        count = len(ids) - len(tail_ids)
        return count if count > 0 and list(ids[count:]) == tail_ids else None


@lru_cache(maxsize=64)
def _generation_prompt(source: str, own: str, given: str) -> str:
    """Of a template with its own and a client's variables, as JSON: rendering takes far longer than
    looking up."""
    template = ChatTemplate(source, "", json.loads(own))
    variables = json.loads(given)
    try:
        without, whole = (
            template.render(
                [{"role": "user", "content": "x"}],
                add_generation_prompt=is_added,
                variables=variables,
            )
            for is_added in (False, True)
        )
    except RequestError:
        # Only a hint is lost; whether the client's own messages can be rendered is seen there.
        return ""
    return whole[len(without) :] if whole.startswith(without) else ""


def load_chat_template(
    model_dir: Path, tokenizer: Tokenizer, *, override: str | None = None
) -> ChatTemplate | None:
    """The template of `--chat-template`, else of chat_template.jinja, else of the tokenizer's
    configuration; None when there is none. A broken one is an error now, not at the first chat.
    """
    if override is not None:
        source, origin = _read_text(Path(override), ConfigError), override
    elif (model_dir / "chat_template.jinja").is_file():
        source, origin = _read_text(model_dir / "chat_template.jinja"), "chat_template.jinja"
    else:
        found = _template_of_settings(tokenizer.settings)
        if found is None:
            return None
        source, origin = found, "tokenizer_config.json"
    try:
        _compile_jinja_template(source)
    except TemplateError as error:
        kind = ModelError if override is None else ConfigError
        raise kind(f"the chat template of {origin} does not compile: {error}") from error
    return ChatTemplate(source, origin, tokenizer.special_tokens)


def plain_messages(
    messages: Sequence[Mapping[str, Any]], *, has_developer_role: bool = False
) -> list[dict[str, Any]]:
    """OpenAI messages as templates expect them; raises `RequestError` naming the field."""
    if not messages:
        raise RequestError("messages must not be empty", param="messages")
    return [
        _plain_message(message, where=f"messages[{index}]", has_developer_role=has_developer_role)
        for index, message in enumerate(messages)
    ]


def _plain_message(
    message: Mapping[str, Any], *, where: str, has_developer_role: bool
) -> dict[str, Any]:
    plain = {key: value for key, value in message.items() if value is not None}
    role = plain.get("role")
    if role not in ("system", "developer", "user", "assistant", "tool"):
        raise RequestError(
            f"{where}.role must be system, developer, user, assistant or tool, got {role!r}",
            param=f"{where}.role",
        )
    if role == "developer" and not has_developer_role:
        plain["role"] = "system"  # OpenAI's newer name for the same thing
    if "content" not in message and role != "assistant":
        raise RequestError(f"{where}.content is required", param=f"{where}.content")
    plain["content"] = _plain_content(plain.get("content"), where=f"{where}.content")
    if "tool_calls" in plain:
        plain["tool_calls"] = _plain_calls(plain["tool_calls"], where=f"{where}.tool_calls")
    if "function_call" in plain:
        raise RequestError(
            f"{where}.function_call is not supported, use tool_calls",
            param=f"{where}.function_call",
        )
    return plain


def _plain_content(content: Any, *, where: str) -> str:
    """Null is empty; parts are joined by a newline, as the other servers do."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestError(f"{where} must be a string or a list of text parts", param=where)
    texts: list[str] = []
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind != "text":
            raise RequestError(
                f"{where}[{index}] is of type {kind!r}, only text is supported",
                param=f"{where}[{index}]",
            )
        if not isinstance(part.get("text"), str):
            raise RequestError(
                f"{where}[{index}].text must be a string", param=f"{where}[{index}].text"
            )
        texts.append(part["text"])
    return "\n".join(texts)


def _plain_calls(calls: Any, *, where: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise RequestError(f"{where} must be a list", param=where)
    plain: list[dict[str, Any]] = []
    for index, call in enumerate(calls):
        at = f"{where}[{index}].function"
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RequestError(f"{at}.name must be a string", param=f"{at}.name")
        arguments = _plain_arguments(function.get("arguments"), where=f"{at}.arguments")
        plain.append({**call, "function": {**function, "arguments": arguments}})
    return plain


def _plain_arguments(arguments: Any, *, where: str) -> dict[str, Any]:
    """Templates walk arguments as a mapping; OpenAI sends them as a string of JSON."""
    if isinstance(arguments, str) and arguments.strip():
        try:
            arguments = json.loads(arguments)
        except ValueError as error:
            raise RequestError(f"{where} is not valid JSON: {error}", param=where) from error
    if arguments is None or arguments == "" or isinstance(arguments, str):
        return {}
    if not isinstance(arguments, dict):
        raise RequestError(f"{where} must be a JSON object", param=where)
    return arguments


def _check_continuation(messages: list[dict[str, Any]], *, add_generation_prompt: bool) -> None:
    if add_generation_prompt:
        raise RequestError(
            "continue_final_message needs add_generation_prompt to be false",
            param="continue_final_message",
        )
    if not messages[-1]["content"]:
        raise RequestError(
            "continue_final_message needs a last message with content",
            param="continue_final_message",
        )


def _template_of_settings(settings: Mapping[str, Any]) -> str | None:
    """A template, or a list of named ones of which `default` is meant."""
    found = settings.get("chat_template")
    if isinstance(found, list):
        named = {entry["name"]: entry["template"] for entry in found}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _read_text(path: Path, kind: type[ModelError] | type[ConfigError] = ModelError) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise kind(f"cannot read the chat template {path}: {error}") from error
