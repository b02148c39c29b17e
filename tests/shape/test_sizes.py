"""The ten longest files and functions of the package: a prompt to look, never a failure.

`scripts/check` shows what this prints. Aim: files of 80 to 250 lines (look again at 400), functions
of at most 20 (look again at 40).
"""

from __future__ import annotations

import ast

from tests.shape.source import Source, python_sources


def longest_files(sources: list[Source]) -> list[tuple[int, str]]:
    return sorted(((len(s.lines), s.name) for s in sources), reverse=True)[:10]


def longest_functions(sources: list[Source]) -> list[tuple[int, str]]:
    """Lines of each function from `def` to its end, docstring included, nested ones as well."""
    sizes = [
        ((node.end_lineno or node.lineno) - node.lineno + 1, f"{source.at(node)} {node.name}")
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return sorted(sizes, reverse=True)[:10]


def test_print_the_longest() -> None:
    sources = python_sources("src/draftmark")
    total = sum(len(source.lines) for source in sources)
    print(f"src: {len(sources)} files, {total:,} lines")
    for title, sizes in (
        ("longest files", longest_files(sources)),
        ("longest functions", longest_functions(sources)),
    ):
        print(title)
        for size, name in sizes:
            print(f"{size:6} {name}")


def test_sizes_are_counted() -> None:
    text = "def a():\n    pass\n\n\nasync def b():\n    def c():\n        pass\n    return c\n"
    specimens = [Source("one", text), Source("two", "x = 1\n")]
    assert longest_files(specimens) == [(8, "one"), (1, "two")]
    assert longest_functions(specimens) == [(4, "one:5 b"), (2, "one:6 c"), (2, "one:1 a")]
