"""YAML as every file of the bench is read: plain values only, and no key twice in one mapping,
where YAML would let the last one win without a word."""

from __future__ import annotations

from typing import Any

import yaml

_MERGE = "tag:yaml.org,2002:merge"


def read_yaml(content: bytes | str) -> Any:
    """Raises `yaml.YAMLError`, whatever is wrong."""
    try:
        return yaml.load(content, Loader=_StrictLoader)
    except ValueError as error:  # bytes that are no text, a 13th month
        raise yaml.YAMLError(str(error)) from error


class _StrictLoader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            # What a merge brings is not given here, and a key that is no scalar is refused below.
            if key_node.tag == _MERGE or not isinstance(key_node, yaml.ScalarNode):
                continue
            key = self.construct_object(key_node)
            if key in seen:
                raise yaml.YAMLError(f"key {key} comes twice, line {key_node.start_mark.line + 1}")
            seen.add(key)
        return super().construct_mapping(node, deep=deep)
