"""One training or evaluation example in chat form, before any template has seen it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Split(StrEnum):
    """Which wordings a generator may draw from. The two share no template family, no tool name, no
    argument string and no seed."""

    TRAIN = "train"
    HELD_OUT = "held-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Messages in OpenAI's form, the last one an assistant's.

    Assistant messages may hold `reasoning_content` and `tool_calls`, whose arguments are mappings
    here. `tools` are OpenAI function schemas. Without `thinking` the generation prompt closes the
    thinking at once, and no message holds reasoning. `kind` names the generator's case.
    """

    kind: str
    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    thinking: bool = True
