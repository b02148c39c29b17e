"""Prints docs/flags.md from the configuration tree: `python -m draftmark.cli.flags_doc`."""

from __future__ import annotations

import inspect
import sys
from typing import get_type_hints

from draftmark.cli.arguments import default_text
from draftmark.core.config import Config
from draftmark.core.options import Kind, Option, expected, options

_HEAD = """\
# Flags

Made from the configuration tree by `python -m draftmark.cli.flags_doc > docs/flags.md`; a test
fails when this file is not current.

Every flag is also a key of a file for `--config FILE`, under its section: `--kv-pool-tokens 4096`
is `memory: {kv_pool_tokens: 4096}`. Flags win over the file, the file over defaults. `auto` means
"choose for me"; what was chosen, and why, is in the start log and at `GET /v1/engine/config`
(`?format=yaml` gives a file for `--config` that starts the same server). The record keeps the path
and hash of the file that was read.
"""


def flags_doc() -> str:
    """The whole document."""
    parts = [_HEAD]
    for section, section_type in get_type_hints(Config).items():
        parts.append(f"## {section}\n\n{inspect.getdoc(section_type)}\n")
        parts.append("| flag | takes | default | what it does |\n|---|---|---|---|")
        parts += [_row(option) for option in options() if option.section == section]
        parts.append("")
    return "\n".join(parts)


def _row(option: Option) -> str:
    flag = f"`{option.flag}`"
    if option.kind is Kind.BOOL:
        flag += f", `--no-{option.name.replace('_', '-')}`"
    takes = "nothing" if option.kind is Kind.BOOL else expected(option)
    cells = [flag, takes, default_text(option), option.doc]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(flags_doc())
