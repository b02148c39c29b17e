"""The environment that says which of several processes this is."""

from __future__ import annotations

import pytest

from draftmark.core.errors import ConfigError
from draftmark.core.torchrun import read_place

ENVIRONMENT = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "host", "MASTER_PORT": "29500"}


def test_what_torchrun_says() -> None:
    place = read_place(
        ENVIRONMENT
        | {
            "LOCAL_RANK": "1",
            "LOCAL_WORLD_SIZE": "2",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "2",
        }
    )
    assert place is not None
    assert (place.rank, place.world_size, place.local_rank, place.local_world_size) == (1, 4, 1, 2)
    assert (place.master_addr, place.master_port, place.has_agent_store) == ("host", 29500, True)
    assert place.key("worker 3") == "draftmark/2/worker 3"


def test_alone() -> None:
    assert read_place({}) is None
    assert read_place({"MASTER_ADDR": "left over", "MASTER_PORT": "1"}) is None
    assert read_place(ENVIRONMENT | {"RANK": "0", "WORLD_SIZE": "1"}) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"MASTER_PORT": None}, "has RANK, WORLD_SIZE, MASTER_ADDR, but not MASTER_PORT"),
        ({"RANK": "4"}, "RANK=4 is not below WORLD_SIZE=4"),
        ({"RANK": "one"}, "RANK=one in the environment is no whole number"),
        ({"WORLD_SIZE": "-1"}, "WORLD_SIZE=-1 in the environment is negative"),
        ({"LOCAL_RANK": ""}, "LOCAL_RANK= in the environment is no whole number"),
    ],
)
def test_what_cannot_be_is_named(changes: dict[str, str | None], words: str) -> None:
    environment = {k: v for k, v in (ENVIRONMENT | changes).items() if v is not None}
    with pytest.raises(ConfigError) as refused:
        read_place(environment)
    assert words in refused.value.message
