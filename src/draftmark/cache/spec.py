"""What one layer keeps of the past: so many bytes per token, or so many per sequence.

A layer states its spec, the budget sums them, the runtime allocates by them; nobody asks a layer
what kind it is.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

PAGE_TOKENS = 16
# Recurrent state is saved at multiples of this only: a snapshot belongs to the end of a page.
STATE_TOKENS = 16
assert STATE_TOKENS == PAGE_TOKENS


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

    @property
    def snapshot_bytes(self) -> int:
        """Bytes that a prefix's fixed state takes beside its pages."""
        return 0


class RecurrentSpec(msgspec.Struct, frozen=True, kw_only=True, tag="recurrent"):
    """Fixed state of one recurrent layer: a matrix a value head, the latest inputs of its
    convolution and the latest updates that are not folded into the matrix yet.

    `conv_depth` and `records` are the lengths of the two rings. `dtype_bytes` is the width of the
    convolution's inputs, `state_bytes_each` that of everything else.
    """

    layer: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_taps: int
    conv_depth: int
    records: int
    dtype_bytes: int
    state_bytes_each: int

    @property
    def token_bytes(self) -> int:
        """Bytes in the page pool per token."""
        return 0

    @property
    def slot_bytes(self) -> int:
        """Bytes of fixed state per sequence."""
        record = self._keys + self._values + self.value_heads
        return self.snapshot_bytes + self.records * record * self.state_bytes_each

    @property
    def snapshot_bytes(self) -> int:
        """Bytes that a prefix's fixed state takes beside its pages: nothing is left to fold."""
        state = self.value_heads * self.key_dim * self.value_dim * self.state_bytes_each
        conv = self.conv_depth * (2 * self._keys + self._values) * self.dtype_bytes
        return state + conv

    @property
    def _keys(self) -> int:
        return self.key_heads * self.key_dim

    @property
    def _values(self) -> int:
        return self.value_heads * self.value_dim


class HiddenSpec(msgspec.Struct, frozen=True, kw_only=True, tag="hidden"):
    """The model's hidden state behind the last token of each page: what a head that drafts needs
    beside its own pages to go on after a prefix."""

    layer: int
    hidden_size: int
    dtype_bytes: int

    @property
    def token_bytes(self) -> int:
        """Bytes in the page pool per token, rounded up."""
        return -(-self.hidden_size * self.dtype_bytes // PAGE_TOKENS)

    @property
    def slot_bytes(self) -> int:
        """Bytes of fixed state per sequence."""
        return 0

    @property
    def snapshot_bytes(self) -> int:
        """Bytes that a prefix's fixed state takes beside its pages."""
        return 0


CacheSpec = AttentionSpec | RecurrentSpec | HiddenSpec


def token_bytes(specs: Iterable[CacheSpec]) -> int:
    """Bytes one token costs in all layers together."""
    return sum(spec.token_bytes for spec in specs)


def slot_bytes(specs: Iterable[CacheSpec]) -> int:
    """Bytes of fixed state one sequence costs in all layers together."""
    return sum(spec.slot_bytes for spec in specs)


def snapshot_bytes(specs: Iterable[CacheSpec]) -> int:
    """Bytes one snapshot costs in all layers together; 0 where no layer is recurrent."""
    return sum(spec.snapshot_bytes for spec in specs)


def encode_specs(specs: Iterable[CacheSpec]) -> msgspec.Raw:
    """For `core.start.WeightsLoaded.cache_specs`. The field is embedded as it is in a msgpack
    message, so it is msgpack itself."""
    return msgspec.Raw(msgspec.msgpack.encode(list(specs)))


def decode_specs(raw: msgspec.Raw) -> list[CacheSpec]:
    """The inverse; raises `msgspec.ValidationError` for an unknown kind."""
    return msgspec.msgpack.decode(raw, type=list[CacheSpec])
