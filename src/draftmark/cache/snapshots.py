"""Which places of the snapshot pool hold what: recurrent state, kept for the prefix cache.

A snapshot is the state after exactly the tokens of one path in the prefix tree. Its place is free,
being written (by a plan without result: then it is its sequence's), or on the node at the end of
that path. Only what is on nodes is evicted, the least recently restored first, and the place may
then be written in the very plan that restores from it: restores come first on the device.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from draftmark.cache.holding import Holding
from draftmark.cache.radix import Node, RadixTree
from draftmark.cache.spec import PAGE_TOKENS


class SnapshotPool:
    """Places 0 .. total - 1. `saves` are those that reached the tree, `evictions` those that left
    it, for want of a place or with their page."""

    def __init__(self, total: int, *, tree: RadixTree) -> None:
        self.total = total
        self.saves = 0
        self.restores = 0
        self.evictions = 0
        self._tree = tree
        self._free = list(range(total - 1, -1, -1))  # a stack: low numbers go out first
        self._cached: OrderedDict[int, Node] = OrderedDict()
        self._savers: dict[Holding, None] = {}  # active ones with anything to save or being written

    @property
    def num_free(self) -> int:
        return len(self._free)

    def usable(self, path: Sequence[Node]) -> int:
        """How many leading nodes of a root path end at its deepest snapshot."""
        depth = bisect_left(path, True, key=_leads_nowhere)
        while depth and path[depth - 1].snapshot < 0:
            depth -= 1
        return depth

    def begin(self, holding: Holding) -> None:
        """`holding` was admitted, and begins from the snapshot at the end of its nodes."""
        if holding.nodes:
            holding.restore = holding.nodes[-1].snapshot
            self._cached.move_to_end(holding.restore)
            self.restores += 1
        if holding.saves:
            self._savers[holding] = None

    def take(self, holding: Holding) -> int:
        """A place for the state at the first of `holding.saves`, which is thereby planned; -1 when
        all places are being written: then nothing is saved there."""
        position = holding.saves.pop(0)
        place = -1
        if self._free or self._evict():
            place = self._free.pop()
            holding.writing.append((position, place))
        self._forget_if_done(holding)
        return place

    def keep(self, holding: Holding, length: int) -> None:
        """What `holding` saved up to `length` is written, and the result that says so was finite:
        it can be restored, unless the same state already could."""
        while holding.writing and holding.writing[0][0] <= length:
            position, place = holding.writing.pop(0)
            node = holding.nodes[position // PAGE_TOKENS - 1]
            if node.snapshot >= 0:
                self._free.append(place)
                continue
            self._tree.hang(node, place)
            self._cached[place] = node
            self.saves += 1
        self._forget_if_done(holding)

    def leave(self, holding: Holding) -> None:
        """Nobody waits any more for what `holding` would have saved."""
        holding.saves.clear()
        self._savers.pop(holding, None)

    def release(self, holding: Holding) -> None:
        """The last step of one that left has its result: what came to nothing is free."""
        self._free += [place for _, place in holding.writing]
        holding.writing.clear()

    def went(self, places: Iterable[int]) -> None:
        """The nodes of these places were evicted."""
        for place in places:
            del self._cached[place]
            self._free.append(place)
            self.evictions += 1

    def is_coming(self, holding: Holding, *, at_least: int) -> bool:
        """Whether an active sequence will leave a snapshot that adds at least `at_least` tokens to
        what `holding` can use now."""
        least = holding.usable + max(at_least, PAGE_TOKENS)
        for writer in self._savers:
            for position in (*reversed(writer.saves), *(p for p, _ in reversed(writer.writing))):
                if position < least:
                    break
                if position <= holding.most_matched and writer.begins_like(holding, position):
                    return True
        return False

    def _evict(self) -> bool:
        """Free the place of the least recently used snapshot of the tree, if there is any."""
        if not self._cached:
            return False
        place, node = next(iter(self._cached.items()))
        self._tree.unhang(node)
        self.went((place,))
        return True

    def _forget_if_done(self, holding: Holding) -> None:
        if not holding.saves and not holding.writing:
            self._savers.pop(holding, None)

    def check(self, nodes: Iterable[Node], holdings: Iterable[Holding]) -> None:
        """Raise `AssertionError` unless every place is free, being written or on a node, once."""
        writing = [place for holding in holdings for _, place in holding.writing]
        cached = {node.snapshot: node for node in nodes if node.snapshot >= 0}
        places = sorted([*self._free, *writing, *cached])
        assert places == list(range(self.total)), "a snapshot is lost, or in two places"
        assert cached == self._cached, "a node has another snapshot than the pool knows"
        assert self.saves - self.evictions == len(cached), "snapshots are miscounted"
        for holding in self._savers:
            assert holding.after_step is None and (holding.saves or holding.writing)


def _leads_nowhere(node: Node) -> bool:
    return not node.num_snapshots
