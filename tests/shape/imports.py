"""Who imports whom, read from the syntax tree: imports inside functions count like any other.

`import_graph` turns sources into edges; the checkers return one sentence a fault, so that a test
can show all of them at once and can itself be tested on planted faults.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from tests.shape.source import Source

# Folder -> what it may import besides itself: folders, or single modules ("cache.spec").
MAY_IMPORT: dict[str, frozenset[str]] = {
    "core": frozenset(),
    "kernels": frozenset(),
    "parallel": frozenset({"core"}),
    "cache": frozenset({"core"}),
    "scheduler": frozenset({"core", "cache"}),
    "layers": frozenset({"core", "kernels", "parallel", "cache.spec"}),
    "models": frozenset({"core", "kernels", "parallel", "cache.spec", "layers"}),
    "speculation": frozenset({"core", "kernels"}),
    "runtime": frozenset(
        {"core", "kernels", "parallel", "cache", "layers", "models", "speculation"}
    ),
    "text": frozenset({"core"}),
    "engine": frozenset({"core", "text", "scheduler", "cache"}),
    "cluster": frozenset({"core", "engine"}),
    "server": frozenset({"core", "text", "engine"}),
    "bench": frozenset({"verdict", "core.errors"}),
    "verdict": frozenset({"bench", "core.errors"}),
}
# The package's own front: `from draftmark import Engine, SamplingParams`.
MAY_IMPORT[""] = frozenset({"core", "engine"})
MAY_IMPORT["cli"] = frozenset(MAY_IMPORT)

TORCH_FREE = ("core", "cache", "scheduler", "engine", "text", "server", "bench", "verdict", "cli")
_TORCH = {"torch", "torchvision", "triton", "torchaudio"}

Graph = dict[str, dict[str, str]]  # module -> imported module of ours -> where


def module_name(path: str) -> str:
    """`src/draftmark/a/b.py` -> `draftmark.a.b`; a package is named by its folder."""
    parts = PurePosixPath(path).with_suffix("").parts
    parts = parts[parts.index("draftmark") :]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def folder(module: str) -> str:
    """First-level folder of a module of ours; "" for the package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] != "__main__" else ""


def imported_names(source: Source) -> Iterator[tuple[str, ast.stmt | ast.expr]]:
    """Absolute dotted names that a file imports, `from a import b` as `a.b`, with their place.

    `importlib.import_module("literal")` counts too.
    """
    package = _package_of(source)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = package[: len(package) - node.level + 1]
                base = ".".join([*up, base] if base else up)
            yield from ((f"{base}.{alias.name}", node) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            called = called.id if isinstance(called, ast.Name) else called
            first = node.args[0]
            if called in ("import_module", "__import__") and isinstance(first, ast.Constant):
                yield str(first.value), node


def _package_of(source: Source) -> list[str]:
    if "draftmark" not in PurePosixPath(source.name).parts:
        return []
    parts = module_name(source.name).split(".")
    return parts if source.name.endswith("__init__.py") else parts[:-1]


def import_graph(sources: list[Source]) -> Graph:
    """Edges between the modules of `sources`; a name inside a module is an edge to that module."""
    modules = {module_name(source.name) for source in sources}
    graph: Graph = {module: {} for module in sorted(modules)}
    for source in sources:
        importer = module_name(source.name)
        for name, node in imported_names(source):
            target = name
            while target and target not in modules:
                target = target.rpartition(".")[0]
            if target and target != importer:
                graph[importer].setdefault(target, source.at(node))
    return graph


def forbidden_imports(graph: Graph) -> list[str]:
    """Edges that the table does not allow, and folders that the table does not know."""
    faults = []
    for importer, targets in graph.items():
        here = folder(importer)
        if here not in MAY_IMPORT:
            faults.append(f"{importer}: folder {here} is not in the import table")
            continue
        for target, where in targets.items():
            inside = target.removeprefix("draftmark.")
            allowed = folder(target) in ({here} | MAY_IMPORT[here]) or inside in MAY_IMPORT[here]
            if not allowed:
                faults.append(f"{where}: {here or 'draftmark'} must not import {target}")
    return faults


def torch_imports(sources: list[Source]) -> list[str]:
    """Imports in torch-free folders that are torch or bring it in."""
    faults = []
    for source in sources:
        if folder(module_name(source.name)) not in TORCH_FREE:
            continue
        for name, node in imported_names(source):
            top = name.partition(".")[0]
            heavy = top == "transformers" and not name.startswith("transformers.utils")
            if top in _TORCH or heavy or name.startswith("safetensors.torch"):
                faults.append(f"{source.at(node)}: {name} in a torch-free folder")
    return faults


def folder_graph(graph: Graph) -> dict[str, set[str]]:
    """The same edges between first-level folders."""
    folders: dict[str, set[str]] = {folder(module): set() for module in graph}
    for importer, targets in graph.items():
        folders[folder(importer)] |= {folder(target) for target in targets} - {folder(importer)}
    return folders


def find_cycle(graph: Mapping[str, set[str]]) -> list[str]:
    """One cycle as [a, b, ..., a], or [] when there is none."""
    done: set[str] = set()
    for start in graph:
        path: list[str] = []
        stack = [(start, iter(sorted(graph[start])))] if start not in done else []
        while stack:
            node, targets = stack[-1]
            if len(path) < len(stack):
                path.append(node)
            for target in targets:
                if target in path:
                    return [*path[path.index(target) :], target]
                if target in graph and target not in done:
                    stack.append((target, iter(sorted(graph[target]))))
                    break
            else:
                done.add(node)
                path.pop()
                stack.pop()
    return []
