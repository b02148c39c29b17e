"""The manifest: hashes of files, no secrets, and what changed between two of them."""

import hashlib
import subprocess
from pathlib import Path

import msgspec
import pytest

from draftmark.bench.manifest import Manifest, _checkout, changes, take_manifest
from draftmark.bench.masking import masked_command


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "profile.yaml"
    path.write_text("name: x\n")
    return path


def test_files_are_named_by_their_hashes(profile: Path):
    found = take_manifest({"profile": profile}, ["draftmark", "bench", "run"])
    only = found.files[0]
    assert (only.role, only.bytes) == ("profile", 8)
    assert only.sha256 == hashlib.sha256(b"name: x\n").hexdigest()
    assert only.md5 == hashlib.md5(b"name: x\n").hexdigest()
    assert found.packages["numpy"]
    assert found.machine.memory_bytes and found.machine.memory_bytes > 1 << 20
    assert msgspec.json.decode(msgspec.json.encode(found), type=Manifest) == found


def test_a_file_that_changed_is_named(profile: Path):
    start = take_manifest({"profile": profile}, [])
    assert changes(start, take_manifest({"profile": profile}, [])) == []
    profile.write_text("name: y\n")
    assert changes(start, take_manifest({"profile": profile}, [])) == [f"{profile} changed"]
    assert changes(start, take_manifest({}, [])) == [f"{profile} changed"]
    newer = msgspec.structs.replace(start, commit="another", code="other code", packages={})
    assert changes(start, newer) == ["code changed", "packages changed"]
    documented = msgspec.structs.replace(start, commit="another")
    assert changes(start, documented) == []


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        take_manifest({"trace": tmp_path / "none.jsonl"}, [])


def test_keys_are_not_told(monkeypatch: pytest.MonkeyPatch):
    said = masked_command(["run", "--api-key", "s3cret", "--max-tokens", "5", "--hf-token=s3cret"])
    assert said == ["run", "--api-key", "***", "--max-tokens", "5", "--hf-token=***"]
    monkeypatch.setenv("HF_TOKEN", "s3cret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("SOMEBODYS_NAME", "s3cret")
    found = take_manifest({}, [])
    assert found.environment["HF_TOKEN"] == "***"
    assert found.environment["CUDA_VISIBLE_DEVICES"] == "0"
    assert b"s3cret" not in msgspec.json.encode(found)


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_code_of_a_checkout(tmp_path: Path):
    """What is committed, changed and new in the package, and nothing beside it."""
    package = tmp_path / "src" / "package"
    package.mkdir(parents=True)
    assert _checkout(package) == (None, None, None)
    git(tmp_path, "init", "-q")
    (package / "__init__.py").write_text("")
    assert _checkout(package) == (None, None, None)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    commit, code, uncommitted = _checkout(package)
    assert (commit, uncommitted) == (git(tmp_path, "rev-parse", "HEAD"), None)
    assert code == git(tmp_path, "rev-parse", "HEAD:src/package")
    (tmp_path / "README.md").write_text("words\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "two")
    assert _checkout(package)[1:] == (code, None)
    (package / "new.py").write_text("x = 1\n")
    new = _checkout(package)[2]
    (package / "__init__.py").write_text("y = 1\n")
    assert len({None, new, _checkout(package)[2]}) == 3
