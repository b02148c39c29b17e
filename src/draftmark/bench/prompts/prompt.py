"""One prompt, before it becomes the body of a request."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from draftmark.bench.profile import PromptSource
from draftmark.core.errors import ConfigError

# Servers cache prompts in blocks of at least this many tokens: prompts that differ within the first
# 16 tokens share nothing.
HEAD_TOKENS = 16


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly one of `ids`, `text` and `messages` is given. Of `ids` the first `num_lead` are what
    the tokenizer puts before every text. `osl` overrules the profile's for this prompt."""

    ids: list[int] | None = None
    num_lead: int = 0
    text: str | None = None
    messages: list[dict[str, Any]] | None = None
    osl: int | None = None
    window: tuple[int, int] | None = None

    @property
    def sha256(self) -> str:
        """Of the content, the same in every process."""
        if self.ids is not None:
            return sha256_of_ids(self.ids)
        if self.text is not None:
            return hashlib.sha256(self.text.encode()).hexdigest()
        return hashlib.sha256(msgspec.json.encode(self.messages, order="sorted")).hexdigest()


def sha256_of_ids(ids: Sequence[int] | np.ndarray[Any, np.dtype[np.uint32]]) -> str:
    """Of token ids as little-endian 32-bit numbers."""
    return hashlib.sha256(np.asarray(ids, dtype="<u4").tobytes()).hexdigest()


def own_tokens(length: int, lead: Sequence[int]) -> int:
    """Tokens that a prompt of `length` has beside `lead`, which begins every text. Raises
    `ConfigError` when there are none."""
    if length <= len(lead):
        raise ConfigError(
            f"a prompt of {length} tokens is all taken by the {len(lead)} that begin every text",
            param="isl",
        )
    return length - len(lead)


def check_heads(prompts: Iterable[Prompt], *, source: PromptSource) -> None:
    """Raises `ConfigError` when two prompts of ids begin with the same 16 tokens: the second would
    be answered from the server's cache."""
    first_with: dict[tuple[int, ...], int] = {}
    for index, prompt in enumerate(prompts):
        if prompt.ids is None:
            continue
        head = tuple(prompt.ids[prompt.num_lead : prompt.num_lead + HEAD_TOKENS])
        other = first_with.setdefault(head, index)
        if other != index:
            raise ConfigError(
                f"source {source}: prompts {other} and {index} begin with the same {len(head)} "
                "tokens, so a prefix cache would answer the second",
                param="source",
            )
