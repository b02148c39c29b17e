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

Recurrent state follows the same words. Where layers keep any, a match is usable only up to a
snapshot; `will_save` and `save` say where a sequence leaves one, `commit` makes it matchable.
"""

from __future__ import annotations

from draftmark.cache.holding import Frontier, Holding
from draftmark.cache.pages import PageAllocator
from draftmark.cache.radix import Node, RadixTree
from draftmark.cache.slots import SlotAllocator
from draftmark.cache.snapshots import SnapshotPool
from draftmark.cache.spec import PAGE_TOKENS, pages_of


class CacheManager:
    """`num_pages` and `num_slots` include the reserved page 0 and slot 0. `num_snapshots` is None
    where pages alone make a prefix usable; a number says that a hit needs a snapshot."""

    def __init__(
        self,
        *,
        num_pages: int,
        num_slots: int,
        num_cohorts: int = 1,
        num_snapshots: int | None = None,
    ) -> None:
        self.pages = PageAllocator(num_pages)
        self.slots = SlotAllocator(num_slots, num_cohorts=num_cohorts)
        self.tree = RadixTree()
        self.snapshots: SnapshotPool | None = None
        if num_snapshots is not None:
            self.snapshots = SnapshotPool(num_snapshots, tree=self.tree)
        self._active: dict[Holding, None] = {}  # in order of admission: plans must not vary
        self._leaving: list[Holding] = []
        self._owned = 0
        self._draining = 0
        self._duplicates = 0
        self._arrived = -1
        self._frontiers: dict[Frontier, Holding] = {}

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

    @property
    def can_save(self) -> bool:
        """Whether there are places for recurrent state."""
        return self.snapshots is not None and self.snapshots.total > 0

    @staticmethod
    def open(tokens: list[int]) -> Holding:
        return Holding(tokens)

    def match(self, holding: Holding) -> int:
        """Look up the longest cached prefix and return its usable tokens: whole pages, at least one
        token is left to run. Cheap to repeat: it goes on from where the last call ended.
        """
        path = holding.path
        limit = holding.most_matched // PAGE_TOKENS
        self.tree.extend(path, packed=holding.packed, limit=limit)
        usable = len(path) if self.snapshots is None else self.snapshots.usable(path)
        holding.matched, holding.usable = len(path) * PAGE_TOKENS, usable * PAGE_TOKENS
        return holding.usable

    def is_being_written(self, holding: Holding, *, at_least: int) -> bool:
        """Whether another sequence is prefilling what follows the match of `holding`, and will thus
        add at least `at_least` tokens to what `holding` can use.
        """
        if self.snapshots is not None:
            return self.snapshots.is_coming(holding, at_least=at_least)
        depth = len(holding.path)
        start = depth * PAGE_TOKENS
        if holding.most_matched - start < max(at_least, PAGE_TOKENS):
            return False
        node = holding.path[-1] if depth else self.tree.root
        writer = self._frontiers.get((node, holding.key(depth)))
        if writer is None or writer.num_prefill < start + at_least:
            return False
        end = start + at_least
        return writer.tokens[start:end] == holding.tokens[start:end]

    @staticmethod
    def will_save(holding: Holding, positions: list[int]) -> None:
        """Where the state of `holding` is to be saved while it prefills: multiples of a page's
        tokens beyond what it can use, in order. Said before `admit`."""
        holding.saves = positions

    def admit(self, holding: Holding, *, step: int, headroom: int, upto: int | None = None) -> bool:
        """Take a slot, and pages for all tokens or for `upto`, if that leaves `headroom` pages
        available.

        Uses what the last `match` found. Changes nothing when it returns False.
        """
        self.tree.extend(holding.path, packed=holding.packed, limit=len(holding.path))
        path = holding.path
        if self.snapshots is not None:
            path = path[: self.snapshots.usable(path)]
        upto = len(holding.tokens) if upto is None else upto
        fresh = pages_of(upto) - len(path)
        if fresh + headroom > self.num_available - self.tree.idle_in(path):
            return False
        if not self.slots.can_take(step=step):
            return False
        self.tree.acquire(path)
        holding.nodes, holding.path = path, []
        holding.drafted_from = _drafted_from(path)
        if self.snapshots is not None:
            self.snapshots.begin(holding)
        holding.pages = [node.page for node in path] + self._take(fresh)
        holding.num_private = fresh
        holding.slot, holding.generation = self.slots.take()
        self._owned += fresh
        self._active[holding] = None
        self._move_frontier(holding)
        return True

    def save(self, holding: Holding) -> int:
        """A place for the state at the first of the positions of `will_save` that are left, which a
        plan now reaches; -1 when there is none."""
        assert self.snapshots is not None
        return self.snapshots.take(holding)

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
        pages, and state that was saved up to there, matchable. The ids must be in
        `holding.tokens`."""
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
            if parent.page == page or parent.refs == 1:
                self._adopt(parent, holding, index)
                published += 1
        self._duplicates += full - first - published
        holding.num_private -= published
        if holding.after_step is None:
            self._owned -= published
            self._move_frontier(holding)
        else:
            self._draining -= published
        if self.snapshots is not None and holding.writing:
            self.snapshots.keep(holding, length)

    def leave(self, holding: Holding, *, after_step: int) -> None:
        """Give up everything once the result of `after_step` has arrived, at once if it has."""
        del self._active[holding]
        self._clear_frontier(holding)
        if self.snapshots is not None:
            self.snapshots.leave(holding)
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
        self._evict(count)
        return count

    def _take(self, count: int) -> list[int]:
        missing = count - self.pages.num_free
        if missing > 0:
            self._evict(missing)
        return self.pages.take(count)

    def _evict(self, count: int) -> None:
        evicted = [self.tree.evict() for _ in range(count)]
        self.pages.give(page for page, _ in evicted)
        if self.snapshots is not None:
            self.snapshots.went(place for _, place in evicted if place >= 0)

    def _adopt(self, node: Node, holding: Holding, index: int) -> None:
        """Have `node`, which nobody else uses, hold page `index` of `holding`, and not a twin."""
        page = holding.pages[index]
        if node.page != page:
            self.pages.give((node.page,))
            node.page = page
        node.is_drafted = holding.is_drafted(index)

    def _reclaim_duplicates(self) -> None:
        """Free cached pages that are in nobody's page table because whoever uses their nodes has a
        twin of its own. Without this a sequence could keep pages it does not read from itself."""
        if not self._duplicates:
            return
        holdings = (*self._active, *self._leaving)
        in_use = {page for holding in holdings for page in holding.pages}
        for holding in self._active:
            for index, node in enumerate(holding.nodes):
                if node.page != holding.pages[index] and node.page not in in_use:
                    self._adopt(node, holding, index)
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
        if self.snapshots is not None:
            self.snapshots.release(holding)
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
        """Raise `AssertionError` unless every page, slot and snapshot has exactly one holder, every
        count is what the holders say, and every reference is somebody's. O(pages): for tests and
        idle times.
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
        if self.snapshots is not None:
            self.snapshots.check(nodes, holdings)


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


def _drafted_from(path: list[Node]) -> int:
    """From where on a head that drafts has all its entries of a prefix. Where the last page lacks
    some, the hidden state behind it is missing too, and with it the entry after it."""
    lacking = next((n for n in range(len(path), 0, -1) if not path[n - 1].is_drafted), 0)
    return max(lacking * PAGE_TOKENS, 1) + (0 < lacking == len(path))
