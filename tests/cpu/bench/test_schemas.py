"""The shipped schemas are those of the types."""

import json

import pytest

from draftmark.bench.schemas import SCHEMAS, path_of, text_of


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_shipped_schema_is_current(name: str):
    found = path_of(name).read_text()
    assert found == text_of(name), "run: python -m draftmark.bench.schemas"


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schema_names_every_field(name: str):
    schema = json.loads(path_of(name).read_text())
    kind = schema["$ref"].rpartition("/")[2]
    assert set(schema["$defs"][kind]["properties"]) == set(SCHEMAS[name].__struct_encode_fields__)


def test_no_schema_is_left_over():
    assert {path.stem for path in path_of("run").parent.glob("*.json")} == set(SCHEMAS)
