"""Prompts out of a corpus: consecutive pieces of the window that the ledger reserved for a run."""

from __future__ import annotations

from collections.abc import Sequence

from draftmark.bench.profile import PromptSource
from draftmark.bench.prompts.prompt import Prompt, check_heads, own_tokens
from draftmark.bench.prompts.random_ids import Ids


def window_prompts(
    tokens: Ids, *, start: int, count: int, length: int, lead: Sequence[int] = ()
) -> list[Prompt]:
    """`count` prompts of exactly `length` ids from `tokens` [corpus] uint32, beginning at `start`.
    `lead` is what the tokenizer puts before every text; it counts, so a prompt takes that much less
    of the corpus. Prompt i has the window that it alone consumed."""
    stride = own_tokens(length, lead)
    prompts = []
    for first in range(start, start + count * stride, stride):
        piece = tokens[first : first + stride]
        assert len(piece) == stride, f"the window [{first}, {first + stride}) leaves the corpus"
        prompts.append(
            Prompt(
                ids=[*lead, *piece.tolist()],
                num_lead=len(lead),
                window=(first, first + stride),
            )
        )
    check_heads(prompts, source=PromptSource.LEDGER)
    return prompts
