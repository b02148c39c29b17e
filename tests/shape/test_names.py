"""Names say what a thing is, every module says what it is for, and no file names a machine."""

from __future__ import annotations

import ast
import re
from pathlib import Path, PurePosixPath

import pytest

from tests.shape.source import ROOT, Source, python_sources, tracked_files

NO_CONCEPT = {"utils", "util", "common", "misc", "helpers", "helper", "types", "stuff"}

# Written so that this file does not match itself.
MACHINE_PATH = re.compile(
    r"(?<![\w.])/(?:hom[e]|User[s]|roo[t]|wor[k]|far[m]|tm[p]/bash_)(?:/|_)[\w.]"
)
REGISTRY = re.compile(
    r"pyp[i]\.org|pythonhosted[.]org|npm[j]s\.|debia[n]\.org|ubunt[u]\.com|cond[a]\.|githu[b]\.io"
    r"|crate[s]\.io|download[.]pytorch\.org(?!/whl/cpu\b)|ghc[r]\.io|quay[.]io|docke[r]\.io"
)


def poor_names(paths: list[str]) -> list[str]:
    """Modules and folders whose name is no concept."""
    return [
        path
        for path in paths
        if NO_CONCEPT & {PurePosixPath(p).stem for p in PurePosixPath(path).parts}
    ]


def machine_names(name: str, text: str) -> list[str]:
    """Lines that hold a path of somebody's machine or the host of a package registry."""
    return [
        f"{name}:{number}: {found.group()}"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern in (MACHINE_PATH, REGISTRY)
        if (found := pattern.search(line))
    ]


def undocumented(sources: list[Source]) -> list[str]:
    """Modules with code but without a docstring."""
    return [s.name for s in sources if s.tree.body and not ast.get_docstring(s.tree)]


def test_modules_are_named_for_a_concept() -> None:
    assert poor_names([source.name for source in python_sources("src", "scripts", "tests")]) == []


def test_every_module_says_what_it_is_for() -> None:
    found = undocumented(python_sources("src", "scripts", "tests", "benchmarks"))
    assert not found, "\n".join(found)


def test_no_machine_is_named() -> None:
    found = [
        fault
        for path in tracked_files()
        for fault in machine_names(str(path.relative_to(ROOT)), read_text(path))
    ]
    assert not found, "\n".join(found)


def read_text(path: Path) -> str:
    """The text of a file, "" when it is binary."""
    data = path.read_bytes()
    return "" if b"\0" in data else data.decode()


@pytest.mark.parametrize(
    "line",
    [
        "cd /hom" + "e/someone/project",
        "path = '/roo" + "t/x'",
        "see /wor" + "k/main",
        "/User" + "s/me",
        "https://pyp" + "i.org/simple",
        "--index-url https://download.pytorch" + ".org/whl/cu130",
    ],
)
def test_a_planted_machine_is_found(line: str) -> None:
    assert len(machine_names("specimen", line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "https://download.pytorch.org/whl/cpu",
        "http://127.0.0.1:8000/v1/chat/completions",
        "GET /v1/models, a network/root/x path",
        "/usr/bin/env bash, /dev/nvidia0, /tmp",
    ],
)
def test_ordinary_lines_pass(line: str) -> None:
    assert machine_names("specimen", line) == []


def test_planted_names_are_found() -> None:
    paths = ["src/a/utils.py", "src/common/x.py", "src/a/pages.py"]
    assert poor_names(paths) == ["src/a/utils.py", "src/common/x.py"]
    planted = [Source("a", "x = 1"), Source("b", '"""Doc."""'), Source("empty", "")]
    assert undocumented(planted) == ["a"]
