"""What leaves the repository: the wheel's content, and hooks and scripts that run what they say."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ["scripts/serve", "scripts/test", "scripts/check", "scripts/lib/setup.sh", ".ci/run"]


@pytest.mark.slow
def test_the_wheel_holds_the_whole_package(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
    ]
    build = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert build.returncode == 0, build.stderr
    with zipfile.ZipFile(next(tmp_path.glob("draftmark-*.whl"))) as wheel:
        names = set(wheel.namelist())
        info = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
        entry_points = wheel.read(f"{info}/entry_points.txt").decode()
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "draftmark").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "draftmark/py.typed" in wanted
    assert wanted <= names
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)
    assert f"{info}/licenses/LICENSE" in names
    assert "draftmark = draftmark.cli.main:main" in entry_points


def test_every_static_file_of_the_page_is_inside_the_package() -> None:
    """The wheel takes what git does not ignore: a page file that is ignored would be lost."""
    static = ROOT / "src/draftmark/server/static"
    files = [str(path.relative_to(ROOT)) for path in static.rglob("*") if path.is_file()]
    assert files
    ignored = subprocess.run(
        ["git", "check-ignore", *files], cwd=ROOT, capture_output=True, text=True
    )
    assert ignored.stdout == ""


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_bash_that_parses(script: str) -> None:
    run = subprocess.run(["bash", "-n", str(ROOT / script)], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


def test_every_hook_is_local_and_runs_a_part_of_check() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    entries = {hook["entry"] for repo in config["repos"] for hook in repo["hooks"]}
    parts = re.findall(r"^ +(\w+)\) \.venv", (ROOT / "scripts/check").read_text(), re.MULTILINE)
    assert entries == {f"scripts/check {part}" for part in parts}
    assert {hook["language"] for repo in config["repos"] for hook in repo["hooks"]} == {"system"}
