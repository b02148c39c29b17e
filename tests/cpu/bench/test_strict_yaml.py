"""One way to read YAML for profiles, cases and declared files: what YAML forgives is refused."""

import pytest
import yaml

from draftmark.bench.strict_yaml import read_yaml


def test_merges_of_a_compose_file_are_no_keys_that_come_twice() -> None:
    text = "a: &base {p: 1, q: 2}\nb: {<<: *base, p: 3}\n"
    assert read_yaml(text)["b"] == {"p": 3, "q": 2}


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("a: 1\nb: 2\na: 3\n", "key a comes twice, line 3"),
        ("a:\n  b: {c: 1, d: 2, c: 3}\n", "key c comes twice, line 2"),
        ("a: &base {p: 1}\nb: {<<: *base, p: 2, p: 3}\n", "key p comes twice, line 2"),
        ("1: a\n0x1: b\n", "key 1 comes twice, line 2"),
        ("? [1, 2]\n: a\n", "unhashable key"),
        ("a: 2026-13-01\n", "month"),
        (b"a: \xff\n", "unacceptable character"),
        ("a: [1\n", "expected"),
    ],
)
def test_what_is_wrong_is_one_kind_of_error(content: bytes | str, fault: str) -> None:
    with pytest.raises(yaml.YAMLError, match=fault):
        read_yaml(content)
