"""Specs add up, and survive the trip through a start message."""

from __future__ import annotations

import msgspec
import pytest

from draftmark.cache.spec import (
    AttentionSpec,
    decode_specs,
    encode_specs,
    pages_of,
    slot_bytes,
    token_bytes,
)
from draftmark.core.start import WeightsLoaded

SPECS = [AttentionSpec(layer=i, kv_heads=3, head_dim=64, dtype_bytes=2) for i in range(30)]


def test_bytes_of_a_real_model() -> None:
    assert token_bytes(SPECS) == 30 * 2 * 3 * 64 * 2
    assert slot_bytes(SPECS) == 0


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (16, 1), (17, 2), (32, 2), (33, 3)])
def test_pages_of(tokens: int, pages: int) -> None:
    assert pages_of(tokens) == pages


def test_specs_travel_in_a_start_message() -> None:
    message = WeightsLoaded(
        cache_specs=encode_specs(SPECS),
        weight_bytes=1,
        free_bytes=2,
        fixed_bytes_per_slot=3,
        workspace_bytes=4,
        seconds={},
    )
    received = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=WeightsLoaded)
    assert decode_specs(received.cache_specs) == SPECS


def test_an_unknown_kind_is_refused() -> None:
    raw = msgspec.Raw(msgspec.msgpack.encode([{"type": "crystal", "layer": 0}]))
    with pytest.raises(msgspec.ValidationError):
        decode_specs(raw)
