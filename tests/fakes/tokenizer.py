"""Small tokenizers made on the spot with `tokenizers`: byte level (one token a byte, some words)
and byte fallback (llama 2 style), each with ChatML tokens and a chat template.
"""

from __future__ import annotations

import json
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from draftmark.text.pieces import byte_alphabet
from draftmark.text.tokenizer import Tokenizer

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{{ message['content'] }}"
    "{% for call in message.tool_calls or [] %}{{ '[' + call.function.name }}"
    "{% for key, value in call.function.arguments|items %}{{ ' ' + key + '=' + value|string }}"
    "{% endfor %}{{ ']' }}{% endfor %}"
    "{{ '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_WORDS = ("th", "the", "in", "ing", "er")


def byte_level(*, bos: bool = False) -> tokenizers.Tokenizer:
    """256 byte tokens, a few merges, three special tokens; with `bos` an encoded text starts so."""
    vocab = {char: index for index, char in enumerate(sorted(byte_alphabet()))}
    merges: list[tuple[str, str]] = []
    for word in _WORDS:
        vocab[word] = len(vocab)
        merges.append((word[:-1], word[-1]) if word[:-1] in vocab else (word[:2], word[2:]))
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(SPECIALS))
    if bos:
        backend.post_processor = processors.TemplateProcessing(
            single="<|endoftext|> $A",
            special_tokens=[("<|endoftext|>", backend.token_to_id("<|endoftext|>"))],
        )
    return backend


def byte_fallback() -> tokenizers.Tokenizer:
    """ASCII letters and the blank as tokens of their own, everything else as <0xXX> bytes."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581"]
    pieces += [chr(code) for code in range(0x21, 0x7F)]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    model = models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True)
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens(list(SPECIALS))
    return backend


def settings() -> dict[str, object]:
    """A tokenizer_config.json: <|im_end|> ends an answer."""
    return {
        "bos_token": "<|im_start|>",
        "eos_token": {"content": "<|im_end|>", "special": True},
        "chat_template": CHAT_TEMPLATE,
    }


def wrap(backend: tokenizers.Tokenizer) -> Tokenizer:
    return Tokenizer(backend, spec=json.loads(backend.to_str()), settings=settings())


def write_model_dir(directory: Path, backend: tokenizers.Tokenizer | None = None) -> Path:
    """The tokenizer files of a model directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (backend or byte_level()).save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(settings()))
    return directory
