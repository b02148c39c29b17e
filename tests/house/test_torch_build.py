"""The choice of a torch build, with a pip that answers from a table."""

from __future__ import annotations

import json

import pytest

import torch_build
from torch_build import CPU_INDEX, Build, announcement, cpu_build, default_build, is_recent


class FakePip:
    """Answers `pip index versions` per source and `pip install --dry-run` with a report."""

    def __init__(self, *, local: str = "", remote: str = "", report: str = "") -> None:
        self.local, self.remote, self.report = local, remote, report
        self.asked: list[list[str]] = []

    def __call__(self, arguments: list[str]) -> str:
        self.asked.append(arguments)
        if arguments[0] == "install":
            return self.report
        versions = self.local if "--no-index" in arguments else self.remote
        return f"torch (x)\nAvailable versions: {versions}\n  LATEST: x\n" if versions else ""


def report(*items: tuple[str, int]) -> str:
    install = [
        {"metadata": {"name": name}, "download_info": {"url": f"mem://{name}/{size}"}}
        for name, size in items
    ]
    return json.dumps({"version": "1", "install": install})


def size_in_url(url: str) -> int:
    return int(url.rpartition("/")[2])


@pytest.fixture(autouse=True)
def on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_build.sys, "platform", "linux")


@pytest.mark.parametrize(
    ("version", "recent"),
    [
        ("2.11.0", True),
        ("2.11.0+cu130", True),
        ("2.13.0+cpu", True),
        ("3.0", True),
        ("2.10.1", False),
        ("2.9.0", False),
        ("1.13.1", False),
        ("unknown", False),
        ("", False),
    ],
)
def test_a_recent_torch_is_kept(version: str, recent: bool) -> None:
    assert is_recent(version) is recent


def test_a_local_cpu_wheel_comes_first() -> None:
    pip = FakePip(local="2.14.1, 2.13.0+cpu", remote="2.13.0+cpu")
    build = cpu_build("2.13.0", ask=pip)
    assert build is not None
    assert build.requirement == "torch==2.13.0+cpu"
    assert "--no-index" in build.options
    assert build.is_local
    assert announcement(build) == ""
    assert len(pip.asked) == 1


def test_a_local_cuda_wheel_is_not_a_cpu_wheel() -> None:
    build = cpu_build("2.13.0", ask=FakePip(local="2.13.0", remote="2.14.0+cpu, 2.13.0+cpu"))
    assert build is not None
    assert CPU_INDEX in build.options
    assert announcement(build) == ""


def test_no_cpu_wheel_anywhere() -> None:
    assert cpu_build("2.13.0", ask=FakePip(local="2.12.0+cpu")) is None


def test_off_linux_the_default_index_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_build.sys, "platform", "darwin")
    assert cpu_build("2.13.0", ask=FakePip(remote="2.13.0+cpu")) is None


def test_the_size_of_a_cuda_build_is_said_before_it_is_downloaded() -> None:
    pip = FakePip(report=report(("torch", 900_000_000), ("nvidia-cublas", 1_900_000_000)))
    build = default_build("2.13.0", ask=pip, size_of=size_in_url)
    assert build.requirement == "torch==2.13.0"
    assert "CUDA" in build.source
    assert announcement(build) == "this downloads 2.8 GB"


def test_a_small_default_build_is_not_announced() -> None:
    pip = FakePip(report=report(("torch", 90_000_000), ("sympy", 6_000_000)))
    build = default_build("2.13.0", ask=pip, size_of=size_in_url)
    assert "CUDA" not in build.source
    assert announcement(build) == ""


def test_an_unknown_size_is_said_to_be_unknown() -> None:
    silent = default_build("2.13.0", ask=FakePip(), size_of=size_in_url)
    sizeless = default_build(
        "2.13.0",
        ask=FakePip(report=report(("torch", 1), ("cuda-toolkit", 1))),
        size_of=lambda _: None,
    )
    for build in (silent, sizeless):
        assert announcement(build).startswith("download size unknown")


def test_a_dead_server_has_no_size() -> None:
    assert torch_build.remote_size("http://127.0.0.1:9/torch.whl") is None
    assert torch_build.remote_size("file:///anything.whl") == 0


def test_a_build_is_a_value() -> None:
    assert Build("torch==1", (), "x") == Build("torch==1", (), "x")
