"""The tokenizer of a GGUF file, rebuilt as Hugging Face's tokenizer.json and its config.

Only byte-level BPE (`gpt2`) with a pre-tokenizer known by name; anything else is refused by name,
since a tokenizer that is nearly right gives wrong answers without a sound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftmark.core.errors import ModelError

# tokenizer.ggml.token_type
_CONTROL, _USER_DEFINED = 3, 4

_QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3_PATTERN = _QWEN2_PATTERN.replace(r"|\p{N}|", r"|\p{N}{1,3}|", 1)

_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
# ByteLevel's own pattern is GPT-2's.
_GPT2_BYTES = {**_BYTES, "use_regex": True}


def _split(pattern: str) -> dict[str, Any]:
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


def _sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


# tokenizer.ggml.pre -> (pre-tokenizer, normalizer, whether whole pre-tokens skip the merges).
_KNOWN: Mapping[str, tuple[dict[str, Any], dict[str, str] | None, bool]] = {
    "gpt-2": (_GPT2_BYTES, None, False),
    "smollm": (
        _sequence({"type": "Digits", "individual_digits": True}, _GPT2_BYTES),
        None,
        False,
    ),
    "qwen2": (_sequence(_split(_QWEN2_PATTERN), _BYTES), {"type": "NFC"}, False),
    "llama-bpe": (_sequence(_split(_LLAMA3_PATTERN), _BYTES), None, True),
}


def tokenizer_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """`metadata` is the GGUF key-value table. Raises `ModelError`."""
    kind = metadata.get("tokenizer.ggml.model")
    pre = str(metadata.get("tokenizer.ggml.pre"))
    if kind != "gpt2":
        raise ModelError(
            f"the GGUF file's tokenizer is {kind!r}; only gpt2 (byte-level BPE) is built"
        )
    if pre not in _KNOWN:
        raise ModelError(
            f"the GGUF file's pre-tokenizer {pre!r} is not known; known: {', '.join(_KNOWN)}"
        )
    pre_tokenizer, normalizer, ignore_merges = _KNOWN[pre]
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(metadata),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": _post_processor(metadata),
        "decoder": {**_BYTES, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": ignore_merges,
            "vocab": {token: n for n, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in metadata["tokenizer.ggml.merges"]],
        },
    }


def tokenizer_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """tokenizer_config.json with the chat template and the named special tokens."""
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_bos_token": bool(metadata.get("tokenizer.ggml.add_bos_token", False)),
        "model_max_length": metadata[f"{metadata['general.architecture']}.context_length"],
    }
    for name, key in _SPECIAL_TOKENS.items():
        token = metadata.get(key)
        if token is not None:
            config[name] = metadata["tokenizer.ggml.tokens"][token]
    template = metadata.get("tokenizer.chat_template")
    if template is not None:
        config["chat_template"] = template
    return config


_SPECIAL_TOKENS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}


def _added_tokens(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Tokens matched as a whole in text, before the pre-tokenizer sees it."""
    tokens = metadata["tokenizer.ggml.tokens"]
    return [
        {
            "id": n,
            "content": tokens[n],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == _CONTROL,
        }
        for n, kind in enumerate(metadata["tokenizer.ggml.token_type"])
        if kind in (_CONTROL, _USER_DEFINED)
    ]


def _post_processor(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """Puts the begin token before a text where the file asks for it."""
    if not metadata.get("tokenizer.ggml.add_bos_token", False):
        return None
    number = metadata["tokenizer.ggml.bos_token_id"]
    token = metadata["tokenizer.ggml.tokens"][number]
    bos = {"SpecialToken": {"id": token, "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [bos, text],
        "pair": [bos, text, {"SpecialToken": {"id": token, "type_id": 1}}, second],
        "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
    }
