"""The project's source as data: parsed files for the checkers of this folder."""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "draftmark"


@dataclass(frozen=True)
class Source:
    """One Python file: `name` is its path from the project's root, or a specimen's title."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.name)

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def at(self, node: ast.stmt | ast.expr | ast.excepthandler) -> str:
        return f"{self.name}:{node.lineno}"


def python_sources(*folders: str) -> list[Source]:
    """Every Python file under these folders of the project, in order of path."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return [Source(str(path.relative_to(ROOT)), path.read_text()) for path in paths]


def tracked_files() -> list[Path]:
    """Files that git has or would add (ignored ones left out)."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    paths = (ROOT / name for name in listing.split("\0") if name)
    return [path for path in paths if path.is_file()]
