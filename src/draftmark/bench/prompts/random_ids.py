"""Prompts of random token ids: of exact length, and nobody's cache has seen them.

The ids follow from a salt (run id and seed) and a position alone, so every process draws the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from draftmark.bench.profile import PromptSource
from draftmark.bench.prompts.prompt import Prompt, check_heads, own_tokens
from draftmark.core.errors import ConfigError

Ids = np.ndarray[Any, np.dtype[np.uint32]]

# Of 16 random ones out of 64 there are 2^96: no two prompts ever begin alike by chance.
_FEWEST_IDS = 64


def draw_ids(allowed: Ids, count: int, *, key: str) -> Ids:
    """`count` ids out of `allowed`, [count] uint32. More ids of one key begin with the same."""
    if len(allowed) < _FEWEST_IDS:
        raise ConfigError(
            f"only {len(allowed)} token ids to draw prompts from, at least {_FEWEST_IDS} are "
            "needed to keep prompts apart",
            param="tokenizer",
        )
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest(), "big")
    # Raw words of the bit generator: numpy keeps these the same in all versions, its draws not.
    words = np.random.PCG64(seed).random_raw(count)
    drawn: Ids = allowed[words % np.uint64(len(allowed))]
    return drawn


def random_prompts(
    allowed: Ids, *, count: int, length: int, salt: str, lead: Sequence[int] = ()
) -> list[Prompt]:
    """`count` prompts of exactly `length` ids, the first of them `lead` (what the tokenizer puts
    before every text). Another salt gives prompts that share no beginning with these."""
    drawn = own_tokens(length, lead)
    prompts = [
        Prompt(
            ids=[*lead, *draw_ids(allowed, drawn, key=f"{salt}/{index}").tolist()],
            num_lead=len(lead),
        )
        for index in range(count)
    ]
    check_heads(prompts, source=PromptSource.RANDOM_IDS)
    return prompts


def salt_of(run_id: str, seed: int) -> str:
    """Two runs share no prompt, whatever their seed; a seed tells runs of one id apart."""
    return f"{run_id}/{seed}"
