"""`Holding`: what one sequence owns of the pools. Only the manager and the snapshot pool change it.

`tokens` is the sequence's own list. `pages` is the page table. `nodes` is the path in the tree of
the leading pages that are committed; where another sequence was first, `nodes[i].page` is that
one's and `pages[i]` stays private. `path` is a match that is not yet owned. `frontier` names the
prompt page this sequence writes next, for others that wait for it.
"""

from __future__ import annotations

from draftmark.cache.radix import KEY_BYTES, Node, pack_tokens
from draftmark.cache.spec import PAGE_TOKENS

Frontier = tuple[Node, bytes]


class Holding:
    """`matched` and `usable` are tokens: what pages alone matched, and what the match is good for.
    Where a match needs a snapshot, `restore` is the one to begin from (-1: from nothing), `saves`
    are the positions, in order, at which state is yet to be saved, and `writing` has (position,
    place) of what plans without result save.

    A head that drafts has no entries before index `drafted_from`: its entry of a token stands at
    the token's index, and is made of the hidden state before it, so that the first token has none.
    """

    __slots__ = (
        "after_step",
        "drafted_from",
        "frontier",
        "generation",
        "matched",
        "nodes",
        "num_prefill",
        "num_private",
        "packed",
        "pages",
        "path",
        "restore",
        "saves",
        "slot",
        "tokens",
        "usable",
        "writing",
    )

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens
        self.num_prefill = len(tokens)
        self.packed = pack_tokens(tokens)
        self.path: list[Node] = []
        self.matched = 0
        self.usable = 0
        self.nodes: list[Node] = []
        self.pages: list[int] = []
        self.num_private = 0
        self.slot = 0
        self.generation = 0
        self.frontier: Frontier | None = None
        self.restore = -1
        self.saves: list[int] = []
        self.writing: list[tuple[int, int]] = []
        self.after_step: int | None = None
        self.drafted_from = 1

    @property
    def covered(self) -> int:
        """Tokens that the pages have room for."""
        return len(self.pages) * PAGE_TOKENS

    @property
    def most_matched(self) -> int:
        """Tokens of whole pages that a match may have at most: one token is left to run."""
        return (len(self.tokens) - 1) // PAGE_TOKENS * PAGE_TOKENS

    def is_drafted(self, index: int) -> bool:
        """Whether the head has all its entries of page `index`."""
        return self.drafted_from <= max(index * PAGE_TOKENS, 1)

    def key(self, index: int) -> bytes:
        """The tree key of page `index`, which is full."""
        start = index * KEY_BYTES
        if start + KEY_BYTES <= len(self.packed):
            return self.packed[start : start + KEY_BYTES]
        return pack_tokens(self.tokens[index * PAGE_TOKENS : (index + 1) * PAGE_TOKENS])

    def begins_like(self, other: Holding, length: int) -> bool:
        """Whether the first `length` tokens, whole pages of what both were opened with, are the
        same."""
        end = length // PAGE_TOKENS * KEY_BYTES
        # Most differ in the first page: the long copy is made for the others only.
        is_alike = self.packed[:KEY_BYTES] == other.packed[:KEY_BYTES]
        return is_alike and self.packed.startswith(other.packed[:end])
