"""The state that a recurrent layer keeps of every slot, and its snapshots.

What a slot holds after L tokens, L a multiple of `STATE_TOKENS`, is its checkpoint and its last
convolution inputs; the records of a lazily folded state do not count there. So a snapshot is a
copy of two tensors, and it may only be taken and used at such a length.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from draftmark.cache.spec import STATE_TOKENS, RecurrentSpec
from draftmark.kernels.gated_delta import FOLD_TOKENS, DeltaCache

assert STATE_TOKENS % FOLD_TOKENS == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentCache:
    """Of one layer: places of all slots, slot 0 the dump one, then those of all snapshots.

    May hold anything, NaN included, where no sequence has been.
    """

    conv: Tensor  # [slots, depth, channels], in the model's dtype
    delta: DeltaCache
    saved_conv: Tensor  # [snapshots, depth, channels]
    saved_state: Tensor  # [snapshots, ...] as `delta.state`

    @classmethod
    def allocate(
        cls,
        spec: RecurrentSpec,
        *,
        num_slots: int,
        num_snapshots: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> RecurrentCache:
        """Left as it comes. `dtype` is the model's; states are in float32 at least."""
        wide = torch.promote_types(dtype, torch.float32)
        assert (dtype.itemsize, wide.itemsize) == (spec.dtype_bytes, spec.state_bytes_each)

        def empty(*shape: int, of: torch.dtype = wide) -> Tensor:
            return torch.empty(shape, dtype=of, device=device)

        keys, values = (spec.key_heads, spec.key_dim), (spec.value_heads, spec.value_dim)
        conv = (spec.conv_depth, 2 * prod(keys) + prod(values))
        state = (spec.value_heads, spec.key_dim, spec.value_dim)
        return cls(
            conv=empty(num_slots, *conv, of=dtype),
            delta=DeltaCache(
                state=empty(num_slots, *state),
                keys=empty(num_slots, spec.records, *keys),
                deltas=empty(num_slots, spec.records, *values),
                gates=empty(num_slots, spec.records, spec.value_heads),
            ),
            saved_conv=empty(num_snapshots, *conv, of=dtype),
            saved_state=empty(num_snapshots, *state),
        )

    def save(self, slot: int, snapshot: int) -> None:
        self.saved_conv[snapshot].copy_(self.conv[slot])
        self.saved_state[snapshot].copy_(self.delta.state[slot])

    def restore(self, slot: int, snapshot: int) -> None:
        self.conv[slot].copy_(self.saved_conv[snapshot])
        self.delta.state[slot].copy_(self.saved_state[snapshot])

    def of_slots(self) -> tuple[Tensor, ...]:
        delta = self.delta
        return (self.conv, delta.state, delta.keys, delta.deltas, delta.gates)

    def tensors(self) -> tuple[Tensor, ...]:
        return (*self.of_slots(), self.saved_conv, self.saved_state)


# Pages of an attention layer are one tensor.
LayerCache = Tensor | RecurrentCache
