"""What one layer keeps of the past: so many bytes per token, or so many per sequence.

A layer states its spec, the budget sums them, the runtime allocates by them; nobody asks a layer
what kind it is. A recurrent-state spec joins `CacheSpec` as a second tagged struct with the same
two properties.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

PAGE_TOKENS = 16


def pages_of(tokens: int) -> int:
    """Pages that `tokens` tokens need."""
    return -(-tokens // PAGE_TOKENS)


class AttentionSpec(msgspec.Struct, frozen=True, kw_only=True, tag="attention"):
    """Keys and values of one attention layer: two vectors a KV head and token."""

    layer: int
    kv_heads: int
    head_dim: int
    dtype_bytes: int

    @property
    def token_bytes(self) -> int:
        """Bytes in the page pool per token."""
        return 2 * self.kv_heads * self.head_dim * self.dtype_bytes

    @property
    def slot_bytes(self) -> int:
        """Bytes of fixed state per sequence."""
        return 0


CacheSpec = AttentionSpec


def token_bytes(specs: Iterable[CacheSpec]) -> int:
    """Bytes one token costs in all layers together."""
    return sum(spec.token_bytes for spec in specs)


def slot_bytes(specs: Iterable[CacheSpec]) -> int:
    """Bytes of fixed state one sequence costs in all layers together."""
    return sum(spec.slot_bytes for spec in specs)


def encode_specs(specs: Iterable[CacheSpec]) -> msgspec.Raw:
    """For `core.start.WeightsLoaded.cache_specs`. The field is embedded as it is in a msgpack
    message, so it is msgpack itself."""
    return msgspec.Raw(msgspec.msgpack.encode(list(specs)))


def decode_specs(raw: msgspec.Raw) -> list[CacheSpec]:
    """The inverse; raises `msgspec.ValidationError` for an unknown kind."""
    return msgspec.msgpack.decode(raw, type=list[CacheSpec])
