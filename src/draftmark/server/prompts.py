"""The prompts of a call as token ids: rendered, tokenised and held against the context.

Runs without the event loop, like everything in `params`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from draftmark.core.errors import ContextOverflow, RequestError
from draftmark.server.model import ServedModel
from draftmark.server.prepared import Prompt
from draftmark.server.protocol import ChatRequest, CompletionRequest, TokenizeRequest
from draftmark.text.tokenizer import Tokenizer

# Encoding holds the interpreter lock; beyond this many characters the slower call that does not
# hold it is used.
LONG_TEXT = 4096


def chat_prompt(request: ChatRequest, model: ServedModel) -> Prompt:
    """Raises `RequestError` naming the message at fault, `ContextOverflow` for one too long."""
    text = render_chat(request, request.messages, model)
    prompt = _encode(text, model, param="messages", add_special=bool(request.add_special_tokens))
    assert model.template is not None, "render_chat comes first"
    history = model.template.history_tokens(
        prompt.ids, text, model.tokenizer, request.chat_template_kwargs
    )
    return replace(prompt, history_tokens=history)


def completion_prompts(request: CompletionRequest, model: ServedModel) -> list[Prompt]:
    """One for each text or list of ids. Raises `RequestError` naming the one at fault."""
    prompt = request.prompt
    add_special = request.add_special_tokens is not False
    if isinstance(prompt, str):
        return [_encode(prompt, model, param="prompt", add_special=add_special)]
    if not prompt:
        raise RequestError("prompt must not be empty", param="prompt")
    if isinstance(prompt[0], int):
        return [_check_ids(prompt, model, param="prompt")]
    if len(prompt) > model.max_choices:
        raise RequestError(
            f"prompt has {len(prompt)} prompts, this server takes at most {model.max_choices} "
            "at once",
            param="prompt",
        )
    prompts: list[Prompt] = []
    for index, item in enumerate(prompt):
        where = f"prompt[{index}]"
        if type(item) is not type(prompt[0]):
            raise RequestError("prompt mixes texts, ids and lists of ids", param=where)
        if isinstance(item, str):
            prompts.append(_encode(item, model, param=where, add_special=add_special))
        elif isinstance(item, list):
            prompts.append(_check_ids(item, model, param=where))
    return prompts


def render_chat(
    request: ChatRequest | TokenizeRequest,
    messages: Sequence[Mapping[str, Any]],
    model: ServedModel,
) -> str:
    """The prompt text of a chat. A continued message is not followed by a generation prompt."""
    if model.template is None:
        raise RequestError(
            f"model {model.names[0]} has no chat template; use /v1/completions, or start the "
            "server with --chat-template FILE",
            param="messages",
        )
    continued = bool(request.continue_final_message)
    add_prompt = request.add_generation_prompt
    return model.template.render(
        messages,
        add_generation_prompt=not continued if add_prompt is None else add_prompt,
        continue_final_message=continued,
        variables=request.chat_template_kwargs,
    )


def encode(text: str, tokenizer: Tokenizer, *, add_special_tokens: bool) -> list[int]:
    """Ids of a text of any length."""
    if len(text) > LONG_TEXT:
        return tokenizer.encode_long(text, add_special_tokens=add_special_tokens)
    return tokenizer.encode(text, add_special_tokens=add_special_tokens)


def _encode(text: str, model: ServedModel, *, param: str, add_special: bool) -> Prompt:
    """Tokenise, unless the length of the text alone shows that it cannot fit."""
    fewest = model.tokenizer.fewest_tokens(text) if len(text) > LONG_TEXT else 0
    if fewest >= model.context:
        raise ContextOverflow(
            f"the prompt has at least {fewest} tokens, the context is {model.context}", param=param
        )
    ids = encode(text, model.tokenizer, add_special_tokens=add_special)
    model.maker.check_prompt(ids, param=param)
    return Prompt(ids=ids, text=text)


def _check_ids(ids: Sequence[object], model: ServedModel, *, param: str) -> Prompt:
    whole = [token for token in ids if isinstance(token, int)]
    if len(whole) < len(ids):
        raise RequestError("prompt mixes texts, ids and lists of ids", param=param)
    model.maker.check_prompt(whole, param=param)
    return Prompt(ids=whole)
