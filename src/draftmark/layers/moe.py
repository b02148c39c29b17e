"""Mixture of experts: a router, the experts that it chooses for each token, and a shared one.

    residual + sum_e w_e expert_e(x) + sigmoid(g x) shared(x)

Every rank has a slice of the features of every expert, so that the ranks differ in nothing that the
router decides. Legend: N tokens, E experts, h hidden, I intermediate features of this rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from draftmark.kernels import experts as op
from draftmark.layers.module import DirectModule
from draftmark.layers.weight import Block, Kept, Layer, Placement, Weight
from draftmark.parallel.sharding import Columns, Replicated, Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class MoEConfig:
    """Sizes of the whole model, not of a rank. `shared_intermediate_size` None: no shared expert.

    `renormalise`: the weights of a token's experts are made to sum to one.
    """

    hidden_size: int
    num_experts: int
    top_k: int
    intermediate_size: int
    renormalise: bool
    shared_intermediate_size: int | None = None


class MoE(DirectModule):
    """x, residual [N, h] -> [N, h]; one sum over the ranks, with the residual on rank 0 alone."""

    def __init__(self, config: MoEConfig, *, placement: Placement) -> None:
        super().__init__()
        self.config, self.placement = config, placement
        self.backend, self.group = placement.backends.experts, placement.group
        size = config.hidden_size
        self.router = _WideWeight(config.num_experts, size, placement=placement)
        self.experts = _Experts(config, placement=placement)
        self.shared: _SharedExpert | None = None
        self.shared_gate: _WideWeight | None = None
        if config.shared_intermediate_size is not None:
            self.shared = _SharedExpert(size, config.shared_intermediate_size, placement=placement)
            self.shared_gate = _WideWeight(1, size, placement=placement)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        own = residual if self.group.rank == 0 else None
        return self.group.sum(op.mixture(x, self.mixture, residual=own, backend=self.backend))

    @cached_property
    def mixture(self) -> op.Mixture:
        """After `finish()`."""
        shared = None
        if self.shared is not None and self.shared_gate is not None:
            shared = op.Shared(
                gate=self.shared_gate.data,
                gate_up=self.shared.gate_up.data,
                down=self.shared.down.data,
            )
        return op.Mixture(
            router=self.router.data,
            prepared=self.experts.prepared,
            shared=shared,
            top_k=self.config.top_k,
            renormalise=self.config.renormalise,
        )

    def token_bytes(self) -> int:
        """Upper bound of the temporaries for one token, but for `fixed_bytes`."""
        config, itemsize = self.config, self.placement.dtype.itemsize
        own = self._workspace_bytes(rows=1) - self._workspace_bytes(rows=0)
        shared = (config.shared_intermediate_size or 0) // self.placement.mesh.tp_size
        # x, the sum and the shared answer in the wide dtype, each a second time on the way.
        return own + 3 * shared * itemsize + 6 * config.hidden_size * max(itemsize, 4)

    def fixed_bytes(self) -> int:
        """Upper bound of the temporaries that do not grow with the tokens."""
        return self._workspace_bytes(rows=0)

    def _workspace_bytes(self, *, rows: int) -> int:
        config = self.config
        return op.workspace_bytes(
            rows=rows,
            top_k=config.top_k,
            num_experts=config.num_experts,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size // self.placement.mesh.tp_size,
            itemsize=self.placement.dtype.itemsize,
        )


class _WideWeight(Kept):
    """[out, in] in float32 at least: what chooses experts is not rounded."""

    def __init__(self, out_size: int, in_size: int, *, placement: Placement) -> None:
        block = Block("", (out_size, in_size), Replicated())
        super().__init__([block], placement, placement.wide_dtype)


class _Experts(Layer):
    """The weights of all experts, those of their features that are this rank's."""

    def __init__(self, config: MoEConfig, *, placement: Placement) -> None:
        super().__init__()
        self.backend, self.num_experts = placement.backends.experts, config.num_experts
        wide = (config.intermediate_size, config.hidden_size)
        split, numbers = Columns("expert features"), range(config.num_experts)
        self.gate_up: Weight | None = Weight(
            [Block(f"{n}.{half}", wide, split) for n in numbers for half in ("gate", "up")],
            placement,
        )
        self.down: Weight | None = Weight(
            [Block(str(n), wide[::-1], Rows("expert features")) for n in numbers], placement
        )

    def finish(self) -> None:
        assert self.gate_up is not None and self.down is not None, "finish() was called twice"
        gate_up, down = (
            weight.data.unflatten(0, (self.num_experts, -1)) for weight in (self.gate_up, self.down)
        )
        self.prepared = op.prepare(gate_up, down, backend=self.backend)
        self.gate_up = self.down = None

    def stored_bytes(self) -> int:
        return op.stored_bytes(self.prepared)


class _SharedExpert(DirectModule):
    """The weights of the expert that all tokens go through, likewise."""

    def __init__(self, hidden_size: int, intermediate_size: int, *, placement: Placement) -> None:
        super().__init__()
        wide, split = (intermediate_size, hidden_size), Columns("shared expert features")
        self.gate_up = Kept([Block("gate", wide, split), Block("up", wide, split)], placement)
        self.down = Kept([Block("", wide[::-1], Rows("shared expert features"))], placement)
