"""Text to token ids for prompts: by a tokenizer file, or by the server's own /tokenize.

Needed to cut a corpus, to know which ids are plain text, and to know how long a text is. Never
needed for the figures: answers are counted by the server.
"""

from __future__ import annotations

import hashlib
import random
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import tokenizers

from draftmark.bench.control import Control
from draftmark.bench.prompts.prompt import sha256_of_ids
from draftmark.bench.prompts.random_ids import Ids
from draftmark.core.errors import ConfigError

_SYLLABLES = tuple(f"{c}{v}" for c in "bcdfghjklmnprstvwz" for v in "aeiou")


class BenchTokenizer(Protocol):
    """`sha256` names the tokenizer, `lead` is what it puts before every text (BOS), `plain_ids`
    [n] uint32 are ids that stand for ordinary text. `encode` adds nothing."""

    @property
    def sha256(self) -> str: ...

    @property
    def lead(self) -> list[int]: ...

    @property
    def plain_ids(self) -> Ids: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: list[int]) -> str: ...


class FileTokenizer:
    """A tokenizer.json."""

    def __init__(self, path: Path) -> None:
        content = _read(path)
        try:
            self._backend = tokenizers.Tokenizer.from_buffer(content)
        except Exception as error:  # tokenizers raises no narrower type
            raise ConfigError(f"{path} is not a tokenizer: {error}", param="tokenizer") from error
        self._backend.no_truncation()
        self._backend.no_padding()
        self.sha256 = hashlib.sha256(content).hexdigest()

    @cached_property
    def lead(self) -> list[int]:
        return _before(self.encode("a"), self._backend.encode("a").ids)

    @cached_property
    def plain_ids(self) -> Ids:
        """The vocabulary without added tokens: these mark roles, calls and ends."""
        added = self._backend.get_added_tokens_decoder()
        vocabulary = self._backend.get_vocab(with_added_tokens=False).values()
        return np.array(sorted(set(vocabulary) - set(added)), dtype=np.uint32)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: list[int]) -> str:
        return self._backend.decode(ids, skip_special_tokens=False)


class ServerTokenizer:
    """The server's /tokenize and /detokenize, which draftmark, vLLM and SGLang share."""

    def __init__(self, control: Control, *, model: str) -> None:
        self._control, self._model = control, model

    @cached_property
    def sha256(self) -> str:
        """Of how it cuts a fixed text: there is no file to hash."""
        return sha256_of_ids(self._sample)

    @cached_property
    def lead(self) -> list[int]:
        return _before(self.encode("a"), self._tokenize("a", add_special_tokens=True))

    @cached_property
    def plain_ids(self) -> Ids:
        """Those of a text of many made-up words: ids that the server is seen to know."""
        return np.unique(np.array(self._sample, dtype=np.uint32))

    @cached_property
    def _sample(self) -> list[int]:
        return self.encode(sample_text())

    def encode(self, text: str) -> list[int]:
        return self._tokenize(text, add_special_tokens=False)

    def decode(self, ids: list[int]) -> str:
        answer = self._post("/detokenize", {"tokens": ids})
        return str(_convert(answer.get("prompt", answer.get("text")), str, path="/detokenize"))

    def _tokenize(self, text: str, *, add_special_tokens: bool) -> list[int]:
        answer = self._post("/tokenize", {"prompt": text, "add_special_tokens": add_special_tokens})
        tokens: list[int] = _convert(answer.get("tokens"), list[int], path="/tokenize")
        return tokens

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._control.post(path, {"model": self._model, **body})
        if answer is None:
            raise ConfigError(
                f"{self._control.url} has no {path}: give a tokenizer of the model with "
                "--tokenizer FOLDER",
                param="tokenizer",
            )
        decoded: dict[str, Any] = _convert(answer, dict[str, Any], path=path)
        return decoded


def find_tokenizer(
    name: str | None, *, control: Control, model: str, is_served: bool
) -> BenchTokenizer | None:
    """`name` is a folder, a tokenizer.json or a model in the Hugging Face cache. Without it: the
    cache under the served model's name, else the server's own where it has one (`is_served`), else
    None. Raises `ConfigError` for a name that is none of these."""
    if name is None:
        cached = _in_hub_cache(model)
        if cached is None:
            return ServerTokenizer(control, model=model) if is_served else None
        return FileTokenizer(cached)
    path = Path(name)
    if path.is_dir():
        return FileTokenizer(path / "tokenizer.json")
    if path.is_file():
        return FileTokenizer(path)
    cached = _in_hub_cache(name)
    if cached is None:
        raise ConfigError(
            f"--tokenizer {name}: no folder, no file, and not in the Hugging Face cache",
            param="tokenizer",
        )
    return FileTokenizer(cached)


def sample_text() -> str:
    """Some thousands of made-up words and numbers, always the same: what a server is asked to cut
    in order to see ids that it knows."""
    rng = random.Random(16)
    words = ("".join(rng.choices(_SYLLABLES, k=1 + n % 3)) for n in range(6000))
    return " ".join(word if n % 7 else str(n) for n, word in enumerate(words))


def _in_hub_cache(name: str) -> Path | None:
    """The tokenizer.json of a model, where it was downloaded before. Asks no network."""
    if name.count("/") != 1:
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "tokenizer.json")
    except HFValidationError:
        # No name that the hub could have: then it is not in its cache either.
        return None
    return Path(found) if isinstance(found, str) else None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror})", param="tokenizer"
        ) from error


def _before(plain: list[int], marked: list[int]) -> list[int]:
    """What stands before the text in `marked`, its ids with special tokens."""
    for start in range(len(marked) - len(plain) + 1):
        if marked[start : start + len(plain)] == plain:
            return marked[:start]
    raise ConfigError("the tokenizer's special tokens change the text itself", param="tokenizer")


def _convert(value: object, kind: Any, *, path: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path} answers something else: {error}", param="url") from error
