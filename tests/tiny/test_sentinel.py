"""A layer of `tiny` that gives NaN: the answer ends and says where, and others go on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from draftmark import Engine
from draftmark.core.errors import EngineFailure


@pytest.mark.parametrize(
    "layer", [4, pytest.param(7, marks=pytest.mark.slow)], ids=["delta net", "attention"]
)
def test_a_layer_that_gives_nan_is_named(socket_root: Path, layer: int) -> None:
    small = {"dtype": "bfloat16", "max_running": 2, "kv_pool_tokens": 1024, "max_context": 512}
    with Engine("tiny", inject=f"nan={layer}:6", **small) as engine:
        given = []
        with pytest.raises(EngineFailure) as caught:
            for delta in engine.stream("It was a cold evening", max_tokens=60, ignore_eos=True):
                given.append(delta.text)
        message = caught.value.message
        print(message)
        place = rf"layer {layer} of stage 0 \(rank 0\) at step \d+, row 0 \(slot \d+\)"
        assert re.search(place, message), message
        assert 0 < len(given) < 60
