"""Configuration files: YAML whose keys mirror the tree (`memory: {kv_pool_tokens: 4096}`).

Reading is strict (an unknown or repeated key is refused, with the key that was probably meant);
writing gives a file that reads back as the same `Config`, with every value's source as a comment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
import yaml

from draftmark.core.config import Config
from draftmark.core.errors import ConfigError
from draftmark.core.foreign_flags import explain
from draftmark.core.options import (
    AUTO_TEXT,
    Option,
    did_you_mean,
    options,
    options_by_name,
    read_value,
)


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Which file was read: its absolute path and the SHA-256 of its bytes."""

    path: str
    sha256: str


def read_config_file(path: Path) -> tuple[dict[str, object], FileRecord]:
    """Field values by key (`model.dtype`), and the record of the file. Raises `ConfigError`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"--config {path}: cannot be read ({error.strerror})", param="config"
        ) from error
    record = FileRecord(path=str(path.resolve()), sha256=hashlib.sha256(content).hexdigest())
    return read_tree(_parse(content, path), where=f"{path}: "), record


def read_tree(tree: Mapping[str, object], *, where: str = "") -> dict[str, object]:
    """Field values by key from a nested mapping of plain values; `where` begins every message."""
    known = _by_section()
    values: dict[str, object] = {}
    for section, items in tree.items():
        if section not in known:
            raise ConfigError(f"{where}{_explain_key(section, known)}")
        if items is None:
            continue
        if not isinstance(items, dict):
            raise ConfigError(f"{where}{section} must hold keys and values, got {items!r}")
        for name, value in items.items():
            option = known[section].get(name)
            if option is None:
                raise ConfigError(f"{where}{_explain_key(name, known[section], prefix=section)}")
            values[option.key] = read_value(option, value, where=f"{where}{option.key}")
    return values


def write_tree(config: Config) -> dict[str, dict[str, object]]:
    """The tree as nested plain values (lists for tuples, None for auto)."""
    tree: dict[str, dict[str, object]] = msgspec.json.decode(msgspec.json.encode(config))
    return tree


def write_yaml(config: Config, *, comments: Mapping[str, str], header: Iterable[str] = ()) -> str:
    """`config` as a file for `--config`. `comments` by key; `header` lines come first."""
    tree = write_tree(config)
    lines = [f"# {_comment(text)}" for text in header]
    for section, section_options in _by_section().items():
        lines.append(f"{section}:")
        for name, option in section_options.items():
            comment = _comment(comments.get(option.key, ""))
            tail = f"  # {comment}" if comment else ""
            lines.append(f"  {name}: {_scalar(tree[section][name])}{tail}")
    return "\n".join(lines) + "\n"


def _scalar(value: object) -> str:
    """One line of YAML for a plain value or a list of them."""
    plain = AUTO_TEXT if value is None else value
    text = yaml.safe_dump([plain], default_flow_style=True, width=float("inf"), allow_unicode=True)
    return str(text).strip()[1:-1]


def _comment(text: str) -> str:
    """`text` on one line, without what YAML refuses even in comments (an odd path, say)."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _by_section() -> dict[str, dict[str, Option]]:
    sections: dict[str, dict[str, Option]] = {}
    for option in options():
        sections.setdefault(option.section, {})[option.name] = option
    return sections


def _explain_key(key: object, known: Iterable[str], *, prefix: str = "") -> str:
    """Why `key` is not a key here, and what was probably meant."""
    shown = f"{prefix}.{key}" if prefix else str(key)
    name = str(key).replace("-", "_")
    if name in options_by_name() and (name not in known or prefix):
        return f"unknown key {shown}; it is {options_by_name()[name].key}"
    foreign = explain(name)
    if foreign is not None:
        return f"unknown key {shown}: {foreign}"
    near = [prefix + "." + name for name in known] if prefix else list(known)
    return f"unknown key {shown}{did_you_mean(shown, [*near, *(o.key for o in options())])}"


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice, where YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key_node.value} is given twice", key_node.start_mark
                )
            seen.add(key_node.value)
        mapping: dict[object, object] = super().construct_mapping(node, deep=deep)
        return mapping


def _parse(content: bytes, path: Path) -> Mapping[str, object]:
    try:
        tree = yaml.load(content, Loader=_StrictLoader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{line}: {error.problem}", param="config") from error
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{path}: not a YAML file ({reason})", param="config") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: must hold sections with keys, e.g. model: {{model: smollm2}}")
    return tree
