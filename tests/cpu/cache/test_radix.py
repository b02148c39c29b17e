"""The prefix tree against a dictionary of prefixes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.cache.radix import KEY_BYTES, Node, RadixTree, pack_tokens
from draftmark.cache.spec import PAGE_TOKENS


def keys(text: str) -> bytes:
    """A letter a page."""
    return b"".join(pack_tokens([ord(letter)] * PAGE_TOKENS) for letter in text)


def put(tree: RadixTree, text: str, *, first_page: int) -> list[Node]:
    """Insert as a running sequence would; the path stays acquired."""
    path: list[Node] = []
    packed = keys(text)
    for index in range(len(text)):
        key = packed[index * KEY_BYTES : (index + 1) * KEY_BYTES]
        parent = path[-1] if path else tree.root
        path.append(tree.add(parent, key=key, page=first_page + index))
    return path


def match(tree: RadixTree, text: str, *, limit: int = 99) -> list[int]:
    path: list[Node] = []
    tree.extend(path, packed=keys(text), limit=min(limit, len(text)))
    return [node.page for node in path]


def test_the_longest_common_prefix_is_found() -> None:
    tree = RadixTree()
    put(tree, "abcd", first_page=1)
    put(tree, "abxy", first_page=11)
    assert match(tree, "abcz") == [1, 2, 3]
    assert match(tree, "abxyz") == [1, 2, 13, 14]
    assert match(tree, "bcd") == []
    assert match(tree, "abcd", limit=2) == [1, 2]
    tree.check()


def test_token_ids_differ_in_every_byte() -> None:
    tree = RadixTree()
    for index, token in enumerate([0, 1, 255, 256, 65_536, 2**31 - 1]):
        tree.add(tree.root, key=pack_tokens([token] * PAGE_TOKENS), page=index + 1)
    assert tree.num_nodes == 6


def test_a_second_page_for_the_same_tokens_stays_with_its_owner() -> None:
    tree = RadixTree()
    first = put(tree, "ab", first_page=1)
    second = put(tree, "abc", first_page=11)
    assert [node.page for node in second] == [1, 2, 13]
    assert [node.refs for node in second] == [2, 2, 1]
    tree.release(first)
    tree.release(second)
    assert tree.num_idle == 3
    tree.check()


def test_eviction_takes_the_least_recently_used_leaf_first() -> None:
    tree = RadixTree()
    old, new = put(tree, "abc", first_page=1), put(tree, "axy", first_page=11)
    tree.release(old)
    tree.release(new)
    again: list[Node] = []
    tree.extend(again, packed=keys("ab"), limit=2)
    tree.acquire(again)
    tree.release(again)
    assert [tree.evict()[0] for _ in range(5)] == [3, 13, 12, 2, 1]
    assert tree.num_nodes == tree.num_idle == 0


def test_what_is_used_is_never_evicted() -> None:
    tree = RadixTree()
    used = put(tree, "ab", first_page=1)
    tree.release(put(tree, "abcd", first_page=11))
    assert [tree.evict()[0] for _ in range(2)] == [14, 13]
    with pytest.raises(KeyError):
        tree.evict()
    assert [node.page for node in used] == [1, 2]


def test_a_match_goes_on_where_it_ended_and_drops_what_was_evicted() -> None:
    tree = RadixTree()
    path: list[Node] = []
    held = put(tree, "ab", first_page=1)
    tree.extend(path, packed=keys("abcd"), limit=4)
    assert [node.page for node in path] == [1, 2]
    tree.release(held)
    tree.release(put(tree, "abc", first_page=11))
    tree.extend(path, packed=keys("abcd"), limit=4)
    assert [node.page for node in path] == [1, 2, 13]
    tree.evict()
    tree.evict()
    tree.extend(path, packed=keys("abcd"), limit=4)
    assert [node.page for node in path] == [1]


texts = st.text("ab", min_size=1, max_size=6)
operations = st.lists(
    st.tuples(st.sampled_from(["put", "release", "evict", "match"]), texts), max_size=60
)


@settings(max_examples=150)
@given(operations)
def test_like_a_dictionary_of_prefixes(history: list[tuple[str, str]]) -> None:
    """`model` maps each cached prefix to its page; `held` are the paths in use."""
    tree, model = RadixTree(), dict[str, int]()
    held: list[tuple[str, list[Node]]] = []
    next_page = 1
    for operation, text in history:
        if operation == "put":
            path = put(tree, text, first_page=next_page)
            for end in range(1, len(text) + 1):
                model.setdefault(text[:end], next_page + end - 1)
            held.append((text, path))
            next_page += len(text)
        elif operation == "release" and held:
            tree.release(held.pop(0)[1])
        elif operation == "evict" and tree.num_idle:
            page, _ = tree.evict()
            (prefix,) = [key for key, value in model.items() if value == page]
            assert not any(key.startswith(prefix) and key != prefix for key in model)
            assert not any(used.startswith(prefix) for used, _ in held)
            del model[prefix]
        elif operation == "match":
            found = match(tree, text)
            ends = [end for end in range(1, len(text) + 1) if text[:end] in model]
            assert found == [model[text[:end]] for end in ends]
        tree.check()
        assert tree.num_nodes == len(model)
        for text_held, path in held:
            assert tree.idle_in(path) == 0
            assert [node.page for node in path] == [
                model[text_held[:end]] for end in range(1, len(text_held) + 1)
            ]


@given(st.integers(0, 6), st.integers(0, 6))
def test_idle_in_counts_the_end_of_a_path(used: int, total: int) -> None:
    tree = RadixTree()
    used = min(used, total)
    path = put(tree, "abcdef"[:total], first_page=1)
    put(tree, "abcdef"[:used], first_page=11)
    tree.release(path)
    assert tree.idle_in(path) == total - used
