"""The fewest tokens a text of a given size can become, without tokenising it.

A 30 MB prompt would take seconds and gigabytes to tokenise only to be refused. Where every token
stands for a bounded number of bytes and no byte is ever dropped, the length alone proves that a
text is too long. Where that cannot be shown from tokenizer.json, there is no bound (0).
"""

from __future__ import annotations

from typing import Any

# Composing (NFC) shortens UTF-8 by less than this factor, whatever the text.
_NFC_SHRINK = 4


def bytes_per_token(spec: dict[str, Any], *, longest_piece: int) -> int:
    """Most bytes of raw text one token can stand for, or 0 when there is no such bound.

    `spec` is tokenizer.json; `longest_piece` the bytes of the longest vocabulary entry.
    """
    model = spec.get("model", {})
    keeps_all_bytes = model.get("type") == "BPE" and (
        bool(model.get("byte_fallback")) or _has_type(spec.get("decoder"), "ByteLevel")
    )
    strips_blanks = any(
        token.get("lstrip") or token.get("rstrip") for token in spec.get("added_tokens") or []
    )
    if not keeps_all_bytes or strips_blanks or not _splits_only(spec.get("pre_tokenizer")):
        return 0
    return longest_piece * _shrink(spec.get("normalizer"))


def _parts(spec: dict[str, Any] | None, key: str) -> list[dict[str, Any]]:
    if spec is None:
        return []
    return list(spec[key]) if spec.get("type") == "Sequence" else [spec]


def _has_type(spec: dict[str, Any] | None, kind: str) -> bool:
    return any(part.get("type") == kind for part in _parts(spec, "decoders"))


def _splits_only(spec: dict[str, Any] | None) -> bool:
    return all(
        part.get("type") in ("ByteLevel", "Digits", "Metaspace")
        or (part.get("type") == "Split" and part.get("behavior") != "Removed")
        for part in _parts(spec, "pretokenizers")
    )


def _shrink(spec: dict[str, Any] | None) -> int:
    """How many raw bytes may become one normalised byte; 0 for no bound."""
    shrink = 1
    for part in _parts(spec, "normalizers"):
        kind = part.get("type")
        if kind == "NFC":
            shrink *= _NFC_SHRINK
        elif kind == "Replace":
            if part.get("pattern") != {"String": " "} or not part.get("content"):
                return 0
        elif kind != "Prepend":
            return 0
    return shrink
