"""The prefix tree: one node a full page of tokens, keyed by the tokens' bytes.

A node is in the tree only once its page is written, and its result was finite: everything in the
tree may be matched. A sequence that uses a node uses all its ancestors too, so reference counts
never rise from parent to child, and releasing a path deepest first keeps the idle nodes in an
order in which no node comes before one of its descendants. The first idle node is therefore always
a leaf, and the least recently used one.

A node may have a snapshot: the recurrent state after its last token. Idle nodes with none at or
below them are of no use where a hit needs one, and are evicted first. They are an order of their
own; where there are no snapshots at all it is the only one.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from draftmark.cache.spec import PAGE_TOKENS

_ID_TYPE = "i"
KEY_BYTES = PAGE_TOKENS * array(_ID_TYPE).itemsize


def pack_tokens(tokens: Sequence[int]) -> bytes:
    """Token ids as bytes; page i of them is `packed[i * KEY_BYTES : (i + 1) * KEY_BYTES]`."""
    return array(_ID_TYPE, tokens).tobytes()


class Node:
    """One cached page. `refs` counts the sequences whose path it is on; `page` is -1 once evicted.
    `snapshot` is the place of its snapshot, or -1; `num_snapshots` counts those at and below it.
    `is_drafted` says that a head that drafts has all of its own entries of the page too.

    Compared by identity: an evicted node and its later twin are two nodes.
    """

    __slots__ = (
        "children",
        "is_drafted",
        "key",
        "num_snapshots",
        "page",
        "parent",
        "refs",
        "snapshot",
    )

    def __init__(self, key: bytes, *, page: int, parent: Node | None) -> None:
        self.children: dict[bytes, Node] = {}
        self.key = key
        self.page = page
        self.parent = parent
        self.refs = 0
        self.snapshot = -1
        self.num_snapshots = 0
        self.is_drafted = False


class RadixTree:
    def __init__(self) -> None:
        self.root = Node(b"", page=0, parent=None)
        self.num_nodes = 0
        self._idle: OrderedDict[Node, None] = OrderedDict()
        self._idle_useful: OrderedDict[Node, None] = OrderedDict()  # a snapshot is at or below it

    @property
    def num_idle(self) -> int:
        """Nodes that no sequence uses: all of them can be evicted, one after the other."""
        return len(self._idle) + len(self._idle_useful)

    def extend(self, path: list[Node], *, packed: bytes, limit: int) -> None:
        """Make `path` the longest one, at most `limit` nodes, that matches `packed`.

        `path` may hold what an earlier call found; evicted nodes are dropped from its end. It holds
        no references.
        """
        while path and path[-1].page < 0:
            path.pop()
        node = path[-1] if path else self.root
        for depth in range(len(path), limit):
            child = node.children.get(packed[depth * KEY_BYTES : (depth + 1) * KEY_BYTES])
            if child is None:
                return
            path.append(child)
            node = child

    def idle_in(self, path: Sequence[Node]) -> int:
        """How many nodes of a root path are idle: its end, as counts never rise on the way."""
        low, high = 0, len(path)
        while low < high:
            middle = (low + high) // 2
            if path[middle].refs:
                low = middle + 1
            else:
                high = middle
        return len(path) - low

    def acquire(self, path: Sequence[Node]) -> None:
        for node in path:
            if node.refs == 0:
                del (self._idle_useful if node.num_snapshots else self._idle)[node]
            node.refs += 1

    def release(self, path: Sequence[Node]) -> None:
        for node in reversed(path):
            node.refs -= 1
            if node.refs == 0:
                (self._idle_useful if node.num_snapshots else self._idle)[node] = None

    def add(self, parent: Node, *, key: bytes, page: int) -> Node:
        """The child of `parent` (which the caller uses) with this key, acquired.

        When another sequence was first the node has that one's page, and `page` stays private to
        the caller: pages of a running sequence are never remapped.
        """
        node = parent.children.get(key)
        if node is None:
            node = Node(key, page=page, parent=parent)
            parent.children[key] = node
            self.num_nodes += 1
            node.refs = 1
            return node
        self.acquire((node,))
        return node

    def hang(self, node: Node, place: int) -> None:
        """`node`, which the caller uses, now has the snapshot in `place`."""
        assert node.snapshot < 0 < node.refs
        node.snapshot = place
        for above in self._up_from(node):
            above.num_snapshots += 1

    def unhang(self, node: Node) -> int:
        """Take the snapshot of `node` away and return its place."""
        place, node.snapshot = node.snapshot, -1
        for above in self._up_from(node):
            above.num_snapshots -= 1
            if above.num_snapshots == 0 and above.refs == 0:
                # Deepest first: whatever is below it is in the other order already.
                del self._idle_useful[above]
                self._idle[above] = None
        return place

    def evict(self) -> tuple[int, int]:
        """Drop an idle leaf, the least recently used of those that lead to no snapshot or else of
        all; its page, and the place of its snapshot or -1."""
        place = -1
        if not self._idle and self._idle_useful:
            # A leaf, as nothing below it is idle: the snapshot is its own.
            place = self.unhang(next(iter(self._idle_useful)))
        node, _ = self._idle.popitem(last=False)
        assert node.parent is not None and not node.children and node.refs == 0
        del node.parent.children[node.key]
        page, node.page = node.page, -1
        self.num_nodes -= 1
        return page, place

    def _up_from(self, node: Node) -> Iterator[Node]:
        """`node` and what is above it, without the root."""
        while node.parent is not None:
            yield node
            node = node.parent

    def nodes(self) -> list[Node]:
        """All nodes, parents first, for integrity checks."""
        found: list[Node] = []
        heap = [self.root]
        while heap:
            children = list(heap.pop().children.values())
            found += children
            heap += children
        return found

    def check(self) -> None:
        """Raise `AssertionError` when the tree contradicts itself."""
        nodes = self.nodes()
        assert len(nodes) == self.num_nodes
        for node in nodes:
            assert node.page > 0 and len(node.key) == KEY_BYTES
            assert node.parent is self.root or node.parent is None or node.parent.refs >= node.refs
            is_idle = node in (self._idle_useful if node.num_snapshots else self._idle)
            assert (node.refs == 0) == is_idle, f"page {node.page}: {node.refs} refs"
            below = sum(child.num_snapshots for child in node.children.values())
            assert node.num_snapshots == below + (node.snapshot >= 0), f"page {node.page}"
        assert self.num_idle == sum(node.refs == 0 for node in nodes)
        for order in (self._idle, self._idle_useful):
            place = {node: index for index, node in enumerate(order)}
            for node, index in place.items():
                assert all(place.get(child, -1) < index for child in node.children.values())
