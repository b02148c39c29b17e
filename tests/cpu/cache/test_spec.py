"""Specs add up, and survive the trip through a start message."""

from __future__ import annotations

import msgspec
import pytest

from draftmark.cache.spec import (
    AttentionSpec,
    RecurrentSpec,
    decode_specs,
    encode_specs,
    pages_of,
    slot_bytes,
    snapshot_bytes,
    token_bytes,
)
from draftmark.core.start import WeightsLoaded

SPECS = [AttentionSpec(layer=i, kv_heads=3, head_dim=64, dtype_bytes=2) for i in range(30)]

# Three of four layers of the smallest hybrid, state in float32, convolution inputs in bfloat16.
RECURRENT = [
    RecurrentSpec(
        layer=i,
        key_heads=16,
        value_heads=16,
        key_dim=128,
        value_dim=128,
        conv_taps=4,
        conv_depth=4,
        records=2,
        dtype_bytes=2,
        state_bytes_each=4,
    )
    for i in range(24)
    if i % 4 < 3
]


def test_bytes_of_a_hybrid_model() -> None:
    state, conv, record = 16 * 128 * 128 * 4, 4 * 3 * 2048 * 2, (2048 + 2048 + 16) * 4
    assert token_bytes(RECURRENT) == 0
    assert snapshot_bytes(RECURRENT) == 18 * (state + conv)
    assert slot_bytes(RECURRENT) == 18 * (state + conv + 2 * record)
    assert 18 * state == 18 << 20
    assert snapshot_bytes(SPECS) == 0


def test_bytes_of_a_real_model() -> None:
    assert token_bytes(SPECS) == 30 * 2 * 3 * 64 * 2
    assert slot_bytes(SPECS) == 0


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (16, 1), (17, 2), (32, 2), (33, 3)])
def test_pages_of(tokens: int, pages: int) -> None:
    assert pages_of(tokens) == pages


def test_specs_travel_in_a_start_message() -> None:
    message = WeightsLoaded(
        cache_specs=encode_specs([*SPECS, *RECURRENT]),
        weight_bytes=1,
        free_bytes=2,
        fixed_bytes_per_slot=3,
        workspace_bytes=4,
        seconds={},
    )
    received = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=WeightsLoaded)
    assert decode_specs(received.cache_specs) == [*SPECS, *RECURRENT]


def test_an_unknown_kind_is_refused() -> None:
    raw = msgspec.Raw(msgspec.msgpack.encode([{"type": "crystal", "layer": 0}]))
    with pytest.raises(msgspec.ValidationError):
        decode_specs(raw)
