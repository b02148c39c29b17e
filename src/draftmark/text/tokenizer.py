"""The tokenizer of a model directory: text to ids, and what each id stands for.

Wraps `tokenizers` alone; importing AutoTokenizer would pull torch into the API process. `encode`
holds the interpreter lock for as long as it takes, `encode_long` does not: the server uses the
second, in a thread, for anything long.
"""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from draftmark.core.errors import ModelError
from draftmark.text.bounds import bytes_per_token
from draftmark.text.pieces import PieceDecoder, read_decoder

# The names chat templates know special tokens by.
_SPECIAL_NAMES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


class Tokenizer:
    """Immutable after construction, so threads may share it. `backend` is owned by this object."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        spec: dict[str, Any],
        settings: dict[str, Any] | None = None,
    ) -> None:
        """`spec` is tokenizer.json and `settings` tokenizer_config.json, both parsed."""
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._spec = spec
        self.settings = settings or {}
        self.pieces: PieceDecoder = read_decoder(spec.get("decoder"))
        self.special_tokens = _special_tokens(self.settings)
        self.special_ids = self._find_special_ids()
        self._bytes: dict[int, bytes] = {}

    @classmethod
    def load(cls, model_dir: Path) -> Tokenizer:
        """Read a model directory; raises `ModelError` with one line for whatever is wrong."""
        path = model_dir / "tokenizer.json"
        if not path.is_file():
            raise ModelError(f"no tokenizer.json in {model_dir}")
        spec = read_json_object(path)
        settings: dict[str, Any] = {}
        for name in ("special_tokens_map.json", "tokenizer_config.json"):
            if (model_dir / name).is_file():
                settings |= read_json_object(model_dir / name)
        try:
            backend = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises no narrower type
            raise ModelError(f"{path} is not a tokenizer: {error}") from error
        return cls(backend, spec=spec, settings=settings)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Ids of `text`; with `add_special_tokens`, plus what the post-processor adds (BOS)."""
        return self._backend.encode(text, add_special_tokens=add_special_tokens).ids

    def encode_long(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The same ids as `encode`, leaving other threads free to run meanwhile."""
        batch = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return batch[0].ids

    def fewest_tokens(self, text: str) -> int:
        """A proven lower bound of `len(encode(text))`, in constant time per byte; 0 for unknown."""
        if not self._bytes_per_token:
            return 0
        return -(-len(text.encode()) // self._bytes_per_token)

    def token_bytes(self, token: int) -> bytes:
        """The bytes that `token` adds to a text. Ids without an entry (padding rows) add none."""
        known = self._bytes.get(token)
        if known is None:
            piece = self._backend.id_to_token(token)
            known = self._bytes[token] = b"" if piece is None else self.pieces.to_bytes(piece)
        return known

    def token_id(self, piece: str) -> int | None:
        """The id of a vocabulary entry, special tokens included."""
        return self._backend.token_to_id(piece)

    @property
    def eos_id(self) -> int | None:
        eos = self.special_tokens.get("eos_token")
        return None if eos is None else self.token_id(eos)

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest id; a model's embedding may have more rows than this."""
        return 1 + max(self._backend.get_vocab(with_added_tokens=True).values())

    @cached_property
    def _bytes_per_token(self) -> int:
        pieces = self._backend.get_vocab(with_added_tokens=True)
        longest = max(len(self.pieces.to_bytes(piece)) for piece in pieces)
        return bytes_per_token(self._spec, longest_piece=longest)

    def _find_special_ids(self) -> frozenset[int]:
        added = self._backend.get_added_tokens_decoder()
        flagged = {token for token, entry in added.items() if entry.special}
        named = {self.token_id(text) for text in self.special_tokens.values()}
        return frozenset(flagged | {token for token in named if token is not None})


def read_json_object(path: Path) -> dict[str, Any]:
    """Parse a file that must hold one JSON object; raises `ModelError` naming it."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} must hold a JSON object, not {type(value).__name__}")
    return value


def _special_tokens(settings: dict[str, Any]) -> dict[str, str]:
    """Name to text; an entry is a string or an object with `content`."""
    found: dict[str, str] = {}
    for name in _SPECIAL_NAMES:
        entry = settings.get(name)
        text = entry.get("content") if isinstance(entry, dict) else entry
        if isinstance(text, str):
            found[name] = text
    return found
