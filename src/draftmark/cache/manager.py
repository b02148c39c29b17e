"""What a sequence owns of the pool: pages and a slot. The host's truth about the cache.

A page is free, owned (private to a running sequence), draining (private to one that left, until
the result of its last step is there) or cached (in the prefix tree, used or idle). The four always
add up to the pool; `check` proves it.

    holding = manager.open(tokens)        nothing owned yet; `tokens` is shared with the sequence
    manager.match(holding)                looks up the cached prefix, owns nothing
    manager.admit(holding, ...)           takes a slot, the matched pages and pages for the rest
    manager.reserve(holding, upto)        appends pages; pages are never remapped
    manager.commit(holding, length)       what is written below `length` becomes matchable
    manager.leave(holding, after_step)    gives up everything once that step's result is there
    manager.arrived(step)                 says that it is

Recurrent state will follow the same five words: a snapshot belongs to a tree node, a checkpoint to
a slot.
"""

from __future__ import annotations

from draftmark.cache.pages import PageAllocator
from draftmark.cache.radix import KEY_BYTES, Node, RadixTree, pack_tokens
from draftmark.cache.slots import SlotAllocator
from draftmark.cache.spec import PAGE_TOKENS, pages_of

_Frontier = tuple[Node, bytes]


class Holding:
    """What one sequence owns. Only the manager changes it; `tokens` is the sequence's own list.

    `pages` is the page table. `nodes` is the path in the tree of the leading pages that are
    committed; where another sequence was first, `nodes[i].page` is that one's and `pages[i]` stays
    private. `path` is a match that is not yet owned. `frontier` names the prompt page this sequence
    writes next, for others that wait for it.
    """

    __slots__ = (
        "after_step",
        "frontier",
        "generation",
        "nodes",
        "num_prefill",
        "num_private",
        "packed",
        "pages",
        "path",
        "slot",
        "tokens",
    )

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens
        self.num_prefill = len(tokens)
        self.packed = pack_tokens(tokens)
        self.path: list[Node] = []
        self.nodes: list[Node] = []
        self.pages: list[int] = []
        self.num_private = 0
        self.slot = 0
        self.generation = 0
        self.frontier: _Frontier | None = None
        self.after_step: int | None = None

    @property
    def covered(self) -> int:
        """Tokens that the pages have room for."""
        return len(self.pages) * PAGE_TOKENS

    def key(self, index: int) -> bytes:
        """The tree key of page `index`, which is full."""
        start = index * KEY_BYTES
        if start + KEY_BYTES <= len(self.packed):
            return self.packed[start : start + KEY_BYTES]
        return pack_tokens(self.tokens[index * PAGE_TOKENS : (index + 1) * PAGE_TOKENS])


class CacheManager:
    """`num_pages` and `num_slots` include the reserved page 0 and slot 0."""

    def __init__(self, *, num_pages: int, num_slots: int, num_cohorts: int = 1) -> None:
        self.pages = PageAllocator(num_pages)
        self.slots = SlotAllocator(num_slots, num_cohorts=num_cohorts)
        self.tree = RadixTree()
        self._active: dict[Holding, None] = {}  # in order of admission: plans must not vary
        self._leaving: list[Holding] = []
        self._owned = 0
        self._draining = 0
        self._duplicates = 0
        self._arrived = -1
        self._frontiers: dict[_Frontier, Holding] = {}

    @property
    def active(self) -> frozenset[Holding]:
        """Those that hold a slot and have not left."""
        return frozenset(self._active)

    @property
    def num_owned(self) -> int:
        return self._owned

    @property
    def num_draining(self) -> int:
        return self._draining

    @property
    def num_cached(self) -> int:
        return self.tree.num_nodes

    @property
    def num_available(self) -> int:
        """Pages that can be handed out now: free ones, and idle cached ones."""
        return self.pages.num_free + self.tree.num_idle

    @staticmethod
    def open(tokens: list[int]) -> Holding:
        return Holding(tokens)

    def match(self, holding: Holding) -> int:
        """Look up the longest cached prefix and return its tokens: whole pages, and at least one
        token is left to run. Cheap to repeat: it goes on from where the last call ended.
        """
        limit = (len(holding.tokens) - 1) // PAGE_TOKENS
        self.tree.extend(holding.path, packed=holding.packed, limit=limit)
        return len(holding.path) * PAGE_TOKENS

    def is_being_written(self, holding: Holding, *, at_least: int) -> bool:
        """Whether another sequence is prefilling what follows the match of `holding`, and goes on
        to write at least `at_least` tokens that `holding` could then match.
        """
        depth = len(holding.path)
        start = depth * PAGE_TOKENS
        usable = (len(holding.tokens) - 1) // PAGE_TOKENS * PAGE_TOKENS - start
        if usable < max(at_least, PAGE_TOKENS):
            return False
        node = holding.path[-1] if depth else self.tree.root
        writer = self._frontiers.get((node, holding.key(depth)))
        if writer is None or writer.num_prefill < start + at_least:
            return False
        end = start + at_least
        return writer.tokens[start:end] == holding.tokens[start:end]

    def admit(self, holding: Holding, *, step: int, headroom: int) -> bool:
        """Take a slot and pages for all tokens, if that leaves `headroom` pages available.

        Uses what the last `match` found. Changes nothing when it returns False.
        """
        self.tree.extend(holding.path, packed=holding.packed, limit=len(holding.path))
        path = holding.path
        fresh = pages_of(len(holding.tokens)) - len(path)
        if fresh + headroom > self.num_available - self.tree.idle_in(path):
            return False
        if not self.slots.can_take(step=step):
            return False
        self.tree.acquire(path)
        holding.nodes, holding.path = path, []
        holding.pages = [node.page for node in path] + self._take(fresh)
        holding.num_private = fresh
        holding.slot, holding.generation = self.slots.take()
        self._owned += fresh
        self._active[holding] = None
        self._move_frontier(holding)
        return True

    def reserve(self, holding: Holding, upto: int) -> list[int] | None:
        """Append pages until `upto` tokens have room; the new pages, or None when there are not
        enough."""
        count = pages_of(upto) - len(holding.pages)
        if count <= 0:
            return []
        if count > self.num_available:
            self._reclaim_duplicates()
            if count > self.num_available:
                return None
        pages = self._take(count)
        holding.pages += pages
        holding.num_private += count
        self._owned += count
        return pages

    def commit(self, holding: Holding, length: int) -> None:
        """Tokens below `length` are written, and the result that says so was finite: make full
        pages matchable. The ids must be in `holding.tokens`."""
        nodes = holding.nodes
        full = length // PAGE_TOKENS
        if len(nodes) >= full:
            return
        parent = nodes[-1] if nodes else self.tree.root
        first, published = len(nodes), 0
        for index in range(first, full):
            page = holding.pages[index]
            parent = self.tree.add(parent, key=holding.key(index), page=page)
            nodes.append(parent)
            if parent.page != page and parent.refs == 1:
                self._adopt(parent, page)
            published += parent.page == page
        self._duplicates += full - first - published
        holding.num_private -= published
        if holding.after_step is None:
            self._owned -= published
            self._move_frontier(holding)
        else:
            self._draining -= published

    def leave(self, holding: Holding, *, after_step: int) -> None:
        """Give up everything once the result of `after_step` has arrived, at once if it has."""
        del self._active[holding]
        self._clear_frontier(holding)
        holding.after_step = after_step
        self._owned -= holding.num_private
        self._draining += holding.num_private
        if after_step <= self._arrived:
            self._release(holding)
        else:
            self._leaving.append(holding)

    def arrived(self, step: int) -> None:
        """The result of `step`, and of all before it, is there and committed."""
        self._arrived = step
        if not self._leaving:
            return
        leaving, self._leaving = self._leaving, []
        for holding in leaving:
            assert holding.after_step is not None
            if holding.after_step <= step:
                self._release(holding)
            else:
                self._leaving.append(holding)

    def reset_cache(self) -> int:
        """Drop every cached page that no sequence uses; returns how many."""
        count = self.tree.num_idle
        self.pages.give(self.tree.evict() for _ in range(count))
        return count

    def _take(self, count: int) -> list[int]:
        missing = count - self.pages.num_free
        if missing > 0:
            self.pages.give(self.tree.evict() for _ in range(missing))
        return self.pages.take(count)

    def _adopt(self, node: Node, page: int) -> None:
        """Have `node`, which only the owner of `page` uses, hold this page instead of its twin."""
        self.pages.give((node.page,))
        node.page = page

    def _reclaim_duplicates(self) -> None:
        """Free cached pages that are in nobody's page table because whoever uses their nodes has a
        twin of its own. Without this a sequence could keep pages it does not read from itself."""
        if not self._duplicates:
            return
        holdings = (*self._active, *self._leaving)
        in_use = {page for holding in holdings for page in holding.pages}
        for holding in self._active:
            for node, page in zip(holding.nodes, holding.pages, strict=False):
                if node.page != page and node.page not in in_use:
                    self._adopt(node, page)
                    holding.num_private -= 1
                    self._owned -= 1
                    self._duplicates -= 1

    def _release(self, holding: Holding) -> None:
        assert holding.after_step is not None
        nodes, pages = holding.nodes, holding.pages
        shared = len(nodes)
        private = pages[shared:]
        twins = [page for page, node in zip(pages, nodes, strict=False) if node.page != page]
        private += twins
        assert len(private) == holding.num_private
        self._duplicates -= len(twins)
        self.pages.give(private)
        self.tree.release(nodes)
        self._draining -= len(private)
        self.slots.give(holding.slot, last_step=holding.after_step)
        holding.pages, holding.nodes, holding.num_private = [], [], 0

    def _move_frontier(self, holding: Holding) -> None:
        """The page after the committed ones is what `holding` writes next, if its ids are known."""
        self._clear_frontier(holding)
        depth = len(holding.nodes)
        if (depth + 1) * PAGE_TOKENS > holding.num_prefill:
            return
        node = holding.nodes[-1] if depth else self.tree.root
        frontier = (node, holding.key(depth))
        if self._frontiers.setdefault(frontier, holding) is holding:
            holding.frontier = frontier

    def _clear_frontier(self, holding: Holding) -> None:
        if holding.frontier is not None:
            del self._frontiers[holding.frontier]
            holding.frontier = None

    def check(self) -> None:
        """Raise `AssertionError` unless every page and slot has exactly one holder, every count is
        what the holders say, and every reference is somebody's. O(pages): for tests and idle times.
        """
        self.tree.check()
        place = dict.fromkeys(self.pages.free_pages(), "free")
        nodes = self.tree.nodes()
        refs = dict.fromkeys(nodes, 0)
        _put(place, [node.page for node in nodes], "cached")
        owned = _check_holdings(list(self._active), place=place, refs=refs, word="owned")
        draining = _check_holdings(self._leaving, place=place, refs=refs, word="draining")
        assert owned == self._owned and draining == self._draining, "page counts are wrong"
        assert len(place) == self.pages.total, f"{self.pages.total - len(place)} pages are lost"
        for node, count in refs.items():
            assert node.refs == count, f"page {node.page}: {node.refs} refs, {count} holders"
        holdings = (*self._active, *self._leaving)
        pairs = [pair for h in holdings for pair in zip(h.nodes, h.pages, strict=False)]
        assert self._duplicates == sum(node.page != page for node, page in pairs)
        held = [holding.slot for holding in holdings]
        assert len(set(held)) == len(held), "a slot has two holders"
        assert self.slots.free_slots().isdisjoint(held)
        assert len(held) + self.slots.num_free == self.slots.total, "a slot is lost"
        for holding in self._frontiers.values():
            assert holding in self._active and holding.frontier in self._frontiers


def _check_holdings(
    holdings: list[Holding], *, place: dict[int, str], refs: dict[Node, int], word: str
) -> int:
    """Enter the private pages and references of `holdings`; returns the private pages."""
    total = 0
    for holding in holdings:
        assert (holding.after_step is None) == (word == "owned")
        shared = {node.page for node in holding.nodes}
        private = [page for page in holding.pages if page not in shared]
        assert len(private) == holding.num_private, f"slot {holding.slot}: private pages"
        _put(place, private, word)
        for index, node in enumerate(holding.nodes):
            assert holding.key(index) == node.key, f"slot {holding.slot}: page {index}"
            refs[node] += 1
        total += len(private)
    return total


def _put(place: dict[int, str], pages: list[int], word: str) -> None:
    for page in pages:
        assert page not in place, f"page {page} is {place[page]} and {word}"
        place[page] = word
