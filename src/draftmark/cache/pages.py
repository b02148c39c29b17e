"""Which pages of the pool are free.

A page has exactly one holder at any time: this free list, one sequence (private pages), or the
prefix tree. Sharing is counted on the tree's nodes, not here.
"""

from __future__ import annotations

from collections.abc import Iterable


class PageAllocator:
    """Pages 1 .. num_pages - 1; page 0 is the dump page and is never handed out."""

    def __init__(self, num_pages: int) -> None:
        if num_pages < 2:
            raise ValueError(f"a pool needs the dump page and one more, got {num_pages} pages")
        self.total = num_pages - 1
        self._free = list(range(self.total, 0, -1))  # a stack: low numbers go out first
        self._is_free = bytearray(b"\1") * num_pages
        self._is_free[0] = 0

    @property
    def num_free(self) -> int:
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """Hand out `count` pages; the caller has checked that they are there."""
        assert 0 < count <= len(self._free), f"{count} pages wanted, {len(self._free)} free"
        pages = self._free[: -count - 1 : -1]
        del self._free[-count:]
        for page in pages:
            self._is_free[page] = 0
        return pages

    def give(self, pages: Iterable[int]) -> None:
        """Take pages back. A page that is free already is a fault of ours."""
        for page in pages:
            assert 0 < page <= self.total, f"page {page} is not of this pool"
            assert not self._is_free[page], f"page {page} was freed twice"
            self._is_free[page] = 1
            self._free.append(page)

    def free_pages(self) -> frozenset[int]:
        """For integrity checks."""
        free = frozenset(self._free)
        assert len(free) == len(self._free), "a page is in the free list twice"
        assert sum(self._is_free) == len(free) and all(self._is_free[page] for page in free)
        return free
