"""How one vocabulary entry becomes bytes, read from the `decoder` section of a tokenizer.json.

Decoding is done here on bytes and not by `tokenizers`, because bytes can be decoded one token at a
time without ever asking what earlier tokens were. A run of byte-fallback tokens that is not valid
UTF-8 becomes one U+FFFD per broken character (the rule of byte-level decoders); `tokenizers`
gives one per byte there, valid characters of the run included, which no stream could do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from draftmark.core.errors import ModelError

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")


@dataclass(frozen=True, slots=True)
class PieceDecoder:
    """`to_bytes` maps a vocabulary entry to its bytes wherever it stands in a text.

    A text that begins with the first token loses up to `strip_start` leading `strip_char`s.
    """

    to_bytes: Callable[[str], bytes]
    strip_start: int = 0
    strip_char: str = " "


def byte_alphabet() -> dict[str, int]:
    """The printable character that stands for each byte in a byte-level vocabulary, inverted."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if chr(byte) not in alphabet)
    alphabet.update({chr(0x100 + index): byte for index, byte in enumerate(list(others))})
    return alphabet


def read_decoder(spec: dict[str, Any] | None) -> PieceDecoder:
    """Translate a decoder description; raises `ModelError` for one that is not known."""
    if spec is None:
        raise ModelError("tokenizer.json has no decoder, so token ids cannot become text")
    steps = spec["decoders"] if spec.get("type") == "Sequence" else [spec]
    replacements: list[tuple[str, str]] = []
    final: Callable[[str], bytes] = _utf8
    strip_start, strip_char = 0, " "
    for step in steps:
        kind = step.get("type")
        if kind == "Replace" and "String" in step["pattern"]:
            replacements.append((step["pattern"]["String"], step["content"]))
        elif kind == "ByteFallback":
            final = _byte_fallback
        elif kind == "ByteLevel":
            final = _byte_level(byte_alphabet())
        elif kind == "Strip" and not step.get("stop"):
            strip_start, strip_char = int(step["start"]), str(step["content"])
        elif kind == "Metaspace":
            replacements.append((step["replacement"], " "))
            strip_start = 0 if step.get("prepend_scheme") == "never" else 1
        elif kind != "Fuse":
            raise ModelError(f"tokenizer.json has a decoder that is not supported: {kind}")
    return PieceDecoder(_chain(replacements, final), strip_start, strip_char)


def _chain(
    replacements: list[tuple[str, str]], final: Callable[[str], bytes]
) -> Callable[[str], bytes]:
    def to_bytes(piece: str) -> bytes:
        for old, new in replacements:
            piece = piece.replace(old, new)
        return final(piece)

    return to_bytes if replacements else final


def _utf8(piece: str) -> bytes:
    return piece.encode()


def _byte_fallback(piece: str) -> bytes:
    match = _BYTE_PIECE.match(piece)
    return bytes([int(match[1], 16)]) if match else piece.encode()


def _byte_level(alphabet: dict[str, int]) -> Callable[[str], bytes]:
    def to_bytes(piece: str) -> bytes:
        try:
            return bytes([alphabet[char] for char in piece])
        except KeyError:  # an added token, written as plain text
            return piece.encode()

    return to_bytes
