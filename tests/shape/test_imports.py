"""The import table of the design holds, nothing imports in a circle, torch stays where tensors are.

The table itself is `tests/shape/imports.py::MAY_IMPORT`.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.shape.imports import (
    TORCH_FREE,
    find_cycle,
    folder,
    folder_graph,
    forbidden_imports,
    import_graph,
    module_name,
    torch_imports,
)
from tests.shape.source import ROOT, Source, python_sources

SOURCES = python_sources("src/draftmark")


def specimens(**files: str) -> list[Source]:
    """Planted modules: `core_a="import x"` is `src/draftmark/core/a.py`."""
    paths = {f"src/draftmark/{name.replace('__', '/')}.py": text for name, text in files.items()}
    return [Source(path, text) for path, text in paths.items()]


def test_only_allowed_imports() -> None:
    found = forbidden_imports(import_graph(SOURCES))
    assert not found, "\n".join(found)


def test_no_cycle_among_folders() -> None:
    assert find_cycle(folder_graph(import_graph(SOURCES))) == []


def test_no_cycle_among_modules() -> None:
    graph = {module: set(targets) for module, targets in import_graph(SOURCES).items()}
    assert find_cycle(graph) == []


def test_torch_free_folders_do_not_name_torch() -> None:
    found = torch_imports(SOURCES)
    assert not found, "\n".join(found)


def test_torch_free_folders_do_not_load_torch() -> None:
    """Import every one of their modules in a fresh process: torch must not come along."""
    names = [module_name(source.name) for source in SOURCES]
    free = [name for name in names if folder(name) in TORCH_FREE and "__main__" not in name]
    lines = ["import importlib, sys"]
    for name in ["draftmark", *free]:
        lines.append(f"importlib.import_module({name!r})")
        lines.append(f"assert 'torch' not in sys.modules, '{name} loads torch'")
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("core__a", "import draftmark.cache.pages"),
        ("core__a", "def f():\n    from draftmark.cache import pages"),
        ("core__a", "from ..cache.pages import Pages"),
        ("core__a", "from draftmark import cache"),
        ("core__a", "import importlib\nimportlib.import_module('draftmark.cache.pages')"),
        ("core__a", "if TYPE_CHECKING:\n    from draftmark.cache.pages import Pages"),
        ("layers__attention", "from draftmark.cache.pages import Pages"),
        ("scheduler__a", "from draftmark.engine.loop import x"),
        ("newfolder__a", "import os"),
        ("server__a", "from draftmark import Engine"),
    ],
)
def test_a_planted_import_is_found(module: str, text: str) -> None:
    planted = specimens(
        __init__="", cache____init__="", cache__pages="", engine__loop="", **{module: text}
    )
    planted[0] = Source("src/draftmark/__init__.py", "")
    planted[1] = Source("src/draftmark/cache/__init__.py", "")
    assert len(forbidden_imports(import_graph(planted))) == 1


def test_allowed_imports_pass() -> None:
    planted = specimens(
        core__errors="",
        cache__spec="",
        layers__a="from draftmark.cache.spec import Spec\nfrom draftmark.core.errors import E",
        cli__serve="def run():\n    from draftmark.layers.a import A",
        verdict__gate="from draftmark.core.errors import E",
    )
    assert forbidden_imports(import_graph(planted)) == []


def test_a_planted_cycle_is_found() -> None:
    planted = specimens(
        core__a="from draftmark.core.b import x",
        core__b="def f():\n    from draftmark.core import c",
        core__c="from .a import y",
        core__d="from .a import y",
    )
    graph = {module: set(targets) for module, targets in import_graph(planted).items()}
    cycle = find_cycle(graph)
    assert cycle[0] == cycle[-1]
    assert set(cycle) == {"draftmark.core.a", "draftmark.core.b", "draftmark.core.c"}
    assert find_cycle(folder_graph(import_graph(planted))) == []
    planted += specimens(
        core__e="import draftmark.cache.f", cache__f="", cache__g="import draftmark.core.a"
    )
    assert set(find_cycle(folder_graph(import_graph(planted)))) == {"core", "cache"}


@pytest.mark.parametrize(
    "text",
    [
        "import torch",
        "def f():\n    import torch.nn as nn",
        "from torch import Tensor",
        "from transformers import AutoTokenizer",
        "from safetensors.torch import load_file",
    ],
)
def test_planted_torch_is_found(text: str) -> None:
    assert len(torch_imports(specimens(engine__a=text))) == 1
    assert torch_imports(specimens(runtime__a=text)) == []


def test_the_template_renderer_is_allowed() -> None:
    text = "from transformers.utils.chat_template_utils import render_jinja_template"
    assert torch_imports(specimens(text__a=text)) == []
