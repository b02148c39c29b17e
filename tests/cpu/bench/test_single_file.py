"""One result in one file: whole or `.part`, never written over, read strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmark.bench.quality import QuickResult
from draftmark.bench.quality.quick import QuickRow
from draftmark.bench.single_file import read_value, write_value
from draftmark.bench.store import StoreError
from draftmark.core.errors import ConfigError

RESULT = QuickResult(
    model="m", passed=0, of=1, rows=[QuickRow(name="a", passed=False, faults=["é"], answer="x")]
)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "quick.json"
    write_value(path, RESULT)
    assert read_value(path, QuickResult) == RESULT
    assert [file.name for file in path.parent.iterdir()] == ["quick.json"]
    with pytest.raises(ConfigError, match="not written over"):
        write_value(path, RESULT)


def test_a_full_disk_leaves_no_result(tmp_path: Path) -> None:
    (tmp_path / "quick.json.part").symlink_to("/dev/full")
    with pytest.raises(StoreError, match="No space left"):
        write_value(tmp_path / "quick.json", RESULT)
    assert not (tmp_path / "quick.json").exists()


@pytest.mark.parametrize("text", ["", "{}", '{"schema": "bench.suite/1"}', "[1]"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "quick.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"quick\.json"):
        read_value(path, QuickResult)


def test_another_schema_or_field_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "quick.json"
    write_value(path, RESULT)
    text = path.read_text()
    for changed in (text.replace("quick/1", "quick/2"), text.replace('"of"', '"off"')):
        path.write_text(changed)
        with pytest.raises(ConfigError):
            read_value(path, QuickResult)
