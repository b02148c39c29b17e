"""Fields of OpenAI, vLLM and SGLang that are known here but not served.

A field is in one of four classes. It works (`protocol`). It changes nothing about an answer and is
accepted (`HARMLESS`). It is accepted at the values that mean "off" and otherwise refused by name
(`REFUSED`). Or it is unknown: accepted, and named in the response header `x-draftmark-ignored`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from draftmark.core.errors import UnsupportedField

IGNORED_HEADER = "x-draftmark-ignored"
_MAX_NAMED = 20
_MAX_NAME_CHARS = 60

HARMLESS = frozenset(
    {
        "metadata",
        "parallel_tool_calls",  # there are no tools to call in parallel
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "request_id",
        "rid",
        "safety_identifier",
        "session_id",
        "user",
    }
)

# Name -> values that mean "off" (null always does).
REFUSED: Mapping[str, tuple[Any, ...]] = {
    # OpenAI
    "audio": (),
    "best_of": (),  # unless it equals n, see `refuse_unsupported`
    "function_call": ("none", "auto"),
    "functions": ([],),
    "modalities": (["text"],),
    "moderation": (),
    "prediction": (),
    "reasoning_effort": (),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": ("medium",),
    "web_search_options": (),
    # vLLM
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "cache_salt": (),
    "chat_template": (),
    "documents": ([],),
    "early_stopping": (False,),
    "ec_transfer_params": ({},),
    "guided_choice": (),
    "guided_decoding_backend": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_whitespace_pattern": (),
    "include_reasoning": (True,),
    "include_stop_str_in_output": (False,),
    "kv_transfer_params": ({},),
    "length_penalty": (1.0,),
    "logits_processors": ([],),
    "logprob_token_ids": ([],),
    "media_io_kwargs": ({},),
    "mm_processor_kwargs": ({},),
    "prompt_embeds": (),
    "repetition_detection": (),
    "return_prompt_text": (False,),
    "return_token_offsets": (False,),
    "routed_experts_prompt_start": (0,),
    "spaces_between_special_tokens": (True,),
    "stream_interval": (1,),
    "structured_outputs": (),
    "thinking_token_budget": (),
    "truncate_prompt_tokens": (),
    "truncation_side": (),
    "use_beam_search": (False,),
    "vllm_xargs": ({},),
    "watermarking": (False,),
    # SGLang
    "custom_logit_processor": (),
    "custom_params": ({},),
    "ebnf": (),
    "json_schema": (),
    "lora_path": (),
    "no_stop_trim": (False,),
    "regex": (),
    "return_hidden_states": (False,),
    "separate_reasoning": (True,),
    "session_params": (),
    "stop_regex": ([],),
    "stream_reasoning": (True,),
    # Known to one of our two endpoints only
    "echo": (False,),
    "max_completion_tokens": (),
}


def refuse_unsupported(body: Mapping[str, Any], *, served: Iterable[str]) -> list[str]:
    """Names in `body` that nobody knows; raises `UnsupportedField` for the first refused one.

    `served` are the fields of the endpoint's own type, which go before both tables.
    """
    served = frozenset(served)
    unknown: list[str] = []
    for name, value in body.items():
        if name in served or name in HARMLESS:
            continue
        if name not in REFUSED:
            unknown.append(name)
        elif value is not None and not _is_off(name, value, body):
            raise UnsupportedField(f"{name} is not supported; leave it out", param=name)
    return unknown


def ignored_header(names: Iterable[str]) -> str:
    """A header value that names unknown fields, whatever characters they are made of."""
    shown = [quote(name[:_MAX_NAME_CHARS], safe="") for name in names]
    more = [f"and {len(shown) - _MAX_NAMED} more"] if len(shown) > _MAX_NAMED else []
    return ", ".join(shown[:_MAX_NAMED] + more)


def _is_off(name: str, value: Any, body: Mapping[str, Any]) -> bool:
    if name == "best_of":
        return bool(value == (body.get("n") or 1))
    if name == "response_format" and isinstance(value, dict):
        return value.get("type") == "text"
    return value in REFUSED[name]
