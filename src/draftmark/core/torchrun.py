"""The environment that `torchrun` gives each process, or a person who starts them by hand.

    RANK, WORLD_SIZE           which worker this is, of how many
    MASTER_ADDR, MASTER_PORT   where rank 0 is, and the store that all find one another by
    LOCAL_RANK, LOCAL_WORLD_SIZE   the same within one machine; without them every machine has one
    TORCHELASTIC_USE_AGENT_STORE   whether torchrun itself keeps the store
    TORCHELASTIC_RESTART_COUNT     names a new start after a failed one

Rank 0 is the server with its first worker; every other rank is a worker that joins it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from draftmark.core.errors import ConfigError

# How long those that were started together wait for one another.
CONNECT_S = 600.0
_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where this process stands among those that were started together."""

    rank: int
    world_size: int
    master_addr: str
    master_port: int
    local_rank: int = 0
    local_world_size: int = 1
    has_agent_store: bool = False
    restart: str = "0"

    def key(self, name: str) -> str:
        """Of the store, for this start."""
        return f"draftmark/{self.restart}/{name}"


def read_place(environment: Mapping[str, str]) -> Place | None:
    """None where nothing says that there are others. Raises `ConfigError` naming a variable that is
    missing or no number."""
    given = [name for name in _NEEDED if name in environment]
    if "WORLD_SIZE" not in given and "RANK" not in given:
        return None
    missing = [name for name in _NEEDED if name not in given]
    if missing:
        raise ConfigError(f"the environment has {', '.join(given)}, but not {', '.join(missing)}")
    place = Place(
        rank=_number(environment, "RANK"),
        world_size=_number(environment, "WORLD_SIZE"),
        master_addr=environment["MASTER_ADDR"],
        master_port=_number(environment, "MASTER_PORT"),
        local_rank=_number(environment, "LOCAL_RANK", 0),
        local_world_size=_number(environment, "LOCAL_WORLD_SIZE", 1),
        has_agent_store=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        restart=environment.get("TORCHELASTIC_RESTART_COUNT", "0"),
    )
    if not 0 <= place.rank < place.world_size:
        raise ConfigError(f"RANK={place.rank} is not below WORLD_SIZE={place.world_size}")
    return place if place.world_size > 1 else None


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environment.get(name)
    if text is None and default is not None:
        return default
    try:
        value = int(text or "")
    except ValueError as error:
        raise ConfigError(f"{name}={text} in the environment is no whole number") from error
    if value < 0:
        raise ConfigError(f"{name}={text} in the environment is negative")
    return value
