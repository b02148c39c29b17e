"""The set-up's own logic: pins, the stamp, what an interruption leaves. Nothing is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import install
from install import (
    SetupError,
    Venv,
    Wanted,
    alone,
    constraints_around,
    half_written,
    pins,
    require_space,
    set_up,
)

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = (
    "# a comment\nnumpy==2.4.6\nsetuptools==84.2.1\nTyping_Extensions==4.1\ntorch==2.13.0\n"
)


def make_project(root: Path) -> Venv:
    (root / "pyproject.toml").write_text("[project]\n")
    (root / "constraints.txt").write_text(CONSTRAINTS)
    env = Venv(root / ".venv", root=root)
    env.python.parent.mkdir(parents=True)
    env.busy.touch()
    return env


def write_package(site: Path, name: str, files: dict[str, str], *, record: bool = True) -> Path:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    rows = [f"{info.name}/RECORD,,"]
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
        rows.append(f'"{path}",sha256=x,{len(text)}')
    if record:
        (info / "RECORD").write_text("\n".join(rows))
    return info


def test_the_pinned_torch_leaves_every_pin() -> None:
    text = constraints_around(CONSTRAINTS, "2.13.0+cpu", ["setuptools", "typing-extensions"])
    assert pins(text) == {
        "numpy": "2.4.6",
        "setuptools": "84.2.1",
        "typing-extensions": "4.1",
        "torch": "2.13.0+cpu",
    }


def test_another_torch_frees_what_it_needs() -> None:
    text = constraints_around(CONSTRAINTS, "2.11.0+cu130", ["setuptools", "typing_extensions"])
    assert pins(text) == {"numpy": "2.4.6", "torch": "2.11.0+cu130"}


def test_every_declared_package_is_pinned() -> None:
    import tomllib

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = declared["project"]
    names = [
        *project["dependencies"],
        *project["optional-dependencies"]["dev"],
        *declared["build-system"]["requires"],
        "editables",
        "pip",
        install.MODEL_PACKAGE,
    ]
    pinned = pins((ROOT / "constraints.txt").read_text())
    missing = [name for name in names if install.canonical(name_of(name)) not in pinned]
    assert missing == []
    assert "+" not in pinned["torch"]


def name_of(requirement: str) -> str:
    return requirement.replace("<", ">").replace("=", ">").replace("[", ">").split(">")[0]


def test_the_stamp_holds_until_something_changes(tmp_path: Path) -> None:
    env = make_project(tmp_path)
    assert env.holds() == set()
    env.write_stamp({"base", "dev"})
    assert env.holds() == {"base", "dev"}
    (tmp_path / "constraints.txt").write_text(CONSTRAINTS + "pytest==9\n")
    assert env.holds() == set()


def test_an_interrupted_set_up_holds_nothing(tmp_path: Path) -> None:
    env = make_project(tmp_path)
    env.write_stamp({"base"})
    env.busy.touch()
    assert env.holds() == set()


def test_nothing_runs_when_the_stamp_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    env = make_project(tmp_path)
    env.write_stamp({"base", "dev"})
    monkeypatch.setattr(sys, "prefix", str(env.path))
    set_up(env, Wanted(dev=True, model=False))
    set_up(env, Wanted(dev=False, model=False))
    assert capsys.readouterr().out == ""


def test_half_written_packages_are_found(tmp_path: Path) -> None:
    whole = write_package(tmp_path, "whole", {"whole/a.py": "x = 1", "whole/b,c.py": ""})
    no_record = write_package(tmp_path, "norecord", {"norecord/a.py": "x"}, record=False)
    absent = write_package(tmp_path, "absent", {"absent/a.py": "x", "absent/b.py": "y"})
    (tmp_path / "absent/b.py").unlink()
    cut = write_package(tmp_path, "cut", {"cut/a.py": "x = 1"})
    (tmp_path / "cut/a.py").write_text("x")
    assert half_written(tmp_path) == sorted([no_record, absent, cut])
    assert whole.exists()


def test_this_environment_is_whole() -> None:
    """The check does not cry wolf on a real installation."""
    site = next(Path(sys.prefix, "lib").glob("python3.*/site-packages"))
    assert half_written(site) == []


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = install.shutil.disk_usage(tmp_path)._replace(free=100_000_000)
    monkeypatch.setattr(install.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(SetupError, match=r"0\.1 GB free, the set-up needs 2\.5 GB"):
        require_space(tmp_path, needed=install.NEEDED_BYTES)


def test_two_set_ups_do_not_run_at_once(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    code = f"""
import sys
sys.path.insert(0, {str(ROOT / "scripts/lib")!r})
from install import alone, Path
with alone(Path({str(tmp_path)!r})):
    print("inside", flush=True)
"""
    with alone(tmp_path):
        other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert "waiting" in other.stdout.readline()
    assert other.communicate(timeout=30)[0].strip() == "inside"


# find_python in setup.sh, with Pythons that only say a version.


def fake_python(folder: Path, name: str, version: str, *, has_venv: bool = True) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    venv = "exit 0" if has_venv else "exit 1"
    path.write_text(
        f'#!/bin/sh\ncase "$2" in *version_info*) echo {version} ;; *ensurepip*) {venv} ;; esac\n'
    )
    path.chmod(0o755)


def find_python(project: Path, path: Path) -> subprocess.CompletedProcess[str]:
    script = f'. "{ROOT}/scripts/lib/setup.sh"; find_python; echo "chose $python"'
    return subprocess.run(
        ["/bin/bash", "-c", script],
        cwd=project,
        env={"PATH": str(path)},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("pythons", "chosen"),
    [
        ({"python3": "3.11", "python3.13": "3.13"}, "python3"),
        ({"python3": "3.9", "python3.12": "3.12", "python3.11": "3.11"}, "python3.12"),
        ({"python3": "3.14", "python3.13": "3.13"}, "python3.13"),
        ({"python": "3.12"}, "python"),
    ],
)
def test_the_right_python_is_found(tmp_path: Path, pythons: dict[str, str], chosen: str) -> None:
    for name, version in pythons.items():
        fake_python(tmp_path / "bin", name, version)
    run = find_python(tmp_path, tmp_path / "bin")
    assert (run.stdout, run.stderr) == (f"chose {chosen}\n", "")


def test_a_newer_python_is_taken_with_a_word(tmp_path: Path) -> None:
    fake_python(tmp_path / "bin", "python3", "3.14")
    run = find_python(tmp_path, tmp_path / "bin")
    assert "Python 3.14 is newer than those it is tested with" in run.stdout
    assert run.stdout.endswith("chose python3\n")


def test_the_project_s_own_python_is_used_first(tmp_path: Path) -> None:
    fake_python(tmp_path / ".venv/bin", "python", "3.12")
    fake_python(tmp_path / "bin", "python3", "3.11")
    assert find_python(tmp_path, tmp_path / "bin").stdout == "chose .venv/bin/python\n"


def test_a_broken_venv_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(tmp_path / "gone")
    fake_python(tmp_path / "bin", "python3", "3.11")
    assert find_python(tmp_path, tmp_path / "bin").stdout == "chose python3\n"


def one_line_error(run: subprocess.CompletedProcess[str]) -> str:
    assert run.returncode == 1
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1
    return run.stderr


def test_a_wrong_python_is_one_line(tmp_path: Path) -> None:
    fake_python(tmp_path / "bin", "python3", "3.9")
    line = one_line_error(find_python(tmp_path, tmp_path / "bin"))
    assert "Python 3.11, 3.12 or 3.13 is needed, found: python3=3.9" in line


def test_no_python_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    assert "found: none" in one_line_error(find_python(tmp_path, tmp_path / "bin"))


def test_a_missing_venv_module_is_one_line(tmp_path: Path) -> None:
    fake_python(tmp_path / "bin", "python3", "3.11", has_venv=False)
    line = one_line_error(find_python(tmp_path, tmp_path / "bin"))
    assert "Python 3.11 has no venv module" in line
    assert "apt-get install python3.11-venv" in line


def test_an_old_venv_is_one_line(tmp_path: Path) -> None:
    fake_python(tmp_path / ".venv/bin", "python", "3.10")
    fake_python(tmp_path / "bin", "python3", "3.11")
    line = one_line_error(find_python(tmp_path, tmp_path / "bin"))
    assert ".venv holds Python 3.10" in line
