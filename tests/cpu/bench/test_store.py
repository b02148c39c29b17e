"""A run's folder: all of it or `.part`, read back strictly, and no figure of a broken run."""

import errno
import gzip
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from draftmark.bench import store
from draftmark.bench.manifest import take_manifest
from draftmark.bench.result import RunState
from draftmark.bench.store import RunFolder, StoreError, load_records, load_run, load_samples
from draftmark.core.errors import ConfigError
from tests.fakes.bench_result import result
from tests.fakes.bench_run import closed_loop, evidence, server_state

RECORDS = closed_loop(concurrency=4, waves=10)
SAMPLES = list(evidence().samples)


def write(runs: Path, run_id: str = "run-1", **changes) -> Path:
    folder = RunFolder(runs, run_id)
    manifest = take_manifest({}, ["draftmark"])
    folder.write_before(server_state(requests=100))
    folder.write_records(RECORDS)
    folder.write_samples(SAMPLES)
    folder.write_after(server_state(requests=140))
    folder.write_log([b"one\n", b"two\n"])
    folder.write_manifest(manifest, manifest)
    return folder.finish(result(run_id=run_id, **changes))[0]


def test_a_run_is_read_as_it_was_written(tmp_path: Path):
    path = write(tmp_path)
    assert path == tmp_path / "run-1"
    found = load_run(path)
    assert msgspec.structs.replace(found, files={}) == result()
    assert load_records(path) == RECORDS
    assert load_samples(path) == SAMPLES
    assert gzip.decompress((path / "log.slice.gz").read_bytes()) == b"one\ntwo\n"
    assert {"run.json", *found.files} == {file.name for file in path.iterdir()}
    assert not list(tmp_path.glob("*.part"))


def test_the_same_rows_are_the_same_bytes(tmp_path: Path):
    first, second = write(tmp_path, "a"), write(tmp_path, "b")
    assert (first / store.REQUESTS).read_bytes() == (second / store.REQUESTS).read_bytes()


def test_a_run_id_is_used_once(tmp_path: Path):
    write(tmp_path)
    with pytest.raises(ConfigError, match="there is a run"):
        RunFolder(tmp_path, "run-1")
    RunFolder(tmp_path, "run-2")
    with pytest.raises(ConfigError, match=r"run-2\.part already"):
        RunFolder(tmp_path, "run-2")


@pytest.mark.parametrize("name", ["../x", "", ".", "a/b", "x.part", ".hidden"])
def test_a_run_id_is_a_name(tmp_path: Path, name: str):
    with pytest.raises(ConfigError, match="cannot be the name"):
        RunFolder(tmp_path, name)


def test_what_is_not_finished_is_no_result(tmp_path: Path):
    folder = RunFolder(tmp_path, "run-1")
    folder.write_records(RECORDS)
    assert not (tmp_path / "run-1").exists()
    with pytest.raises(ConfigError, match="broke off"):
        load_run(folder.part)
    assert load_records(folder.part) == RECORDS


def test_a_full_disk_keeps_what_there_is(tmp_path: Path):
    """By the limit of a file's size, in a process of its own: the error of a full disk is alike."""
    program = f"""
import resource, signal
from pathlib import Path
from draftmark.bench.store import RunFolder
from tests.fakes.bench_run import closed_loop
folder = RunFolder(Path({str(tmp_path)!r}), "run-1")
folder.write_records(closed_loop(concurrency=1, waves=2))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
folder.write_log([bytes(range(256)) * 99, __import__("os").urandom(99999)])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "log.slice.gz could not be written (File too large)" in done.stderr
    assert "run-1.part, and is no result" in done.stderr
    assert len(load_records(tmp_path / "run-1.part")) == 2
    assert not (tmp_path / "run-1").exists()


def test_a_disk_that_is_full_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = RunFolder(tmp_path, "run-1")
    folder.write_records(RECORDS)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store.os, "fsync", full)
    with pytest.raises(StoreError, match=r"run\.json could not be written \(No space left"):
        folder.finish(result())
    assert not (tmp_path / "run-1").exists()
    with pytest.raises(ConfigError, match="broke off"):
        load_run(folder.part)


def test_a_folder_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(StoreError, match="cannot be made"):
        RunFolder(tmp_path / "runs", "run-1")


def test_a_broken_run_may_be_kept_but_not_with_figures(tmp_path: Path):
    path = write(tmp_path, why_partial="interrupted")
    assert load_run(path).state is RunState.PARTIAL
    folder = RunFolder(tmp_path, "run-2")
    lie = msgspec.structs.replace(result(run_id="run-2"), state=RunState.PARTIAL)
    with pytest.raises(AssertionError, match="figures of a broken run"):
        folder.finish(lie)


def test_what_does_not_read_back_is_an_error(tmp_path: Path):
    folder = RunFolder(tmp_path, "run-1")
    wrong = msgspec.structs.replace(RECORDS[0], n_out="many")
    with pytest.raises(StoreError, match=r"line 1 of .*n_out"):
        folder.write_records([wrong])


def test_files_that_changed_are_found(tmp_path: Path):
    path = write(tmp_path)
    with gzip.open(path / store.REQUESTS, "wb") as file:
        file.write(msgspec.json.encode(RECORDS[0]) + b"\n")
    with pytest.raises(ConfigError, match="is not the file that was written"):
        load_run(path)
    (path / store.REQUESTS).unlink()
    with pytest.raises(ConfigError, match="is gone"):
        load_run(path)


def test_a_result_of_another_kind_is_refused(tmp_path: Path):
    path = write(tmp_path)
    text = (path / "run.json").read_text()
    (path / "run.json").write_text(text.replace("bench.run/1", "bench.run/9"))
    with pytest.raises(ConfigError, match="schema"):
        load_run(path)
    (path / "run.json").unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        load_run(path)
