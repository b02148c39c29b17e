"""Token embedding and output head, with one weight or two. Each rank has the rows of some ids."""

from __future__ import annotations

from torch import Tensor

from draftmark.kernels import linear as op
from draftmark.layers.weight import Block, Layer, Placement, Weight
from draftmark.parallel.sharding import Vocab, vocab_widths


class Embedding(Layer):
    """ids int64 [N] -> [N, hidden]. The table stays as loaded."""

    def __init__(self, vocab_size: int, hidden_size: int, *, placement: Placement) -> None:
        super().__init__()
        table = Block("", (vocab_size, hidden_size), Vocab())
        self.weight = Weight([table], placement)
        self.group = placement.group
        ids = Vocab().part(table.shape, placement.mesh)[0]
        self.first_id = ids.start
        # An id of nobody is left to the first or last rank and fails there, as it does on one.
        self.least = None if ids.start == 0 else 0
        self.most = None if ids.stop == vocab_size else ids.stop - ids.start - 1

    def finish(self) -> None:
        self.table = self.weight.data

    def stored_bytes(self) -> int:
        return self.weight.nbytes

    def forward(self, ids: Tensor) -> Tensor:
        if self.group.size == 1:
            return self.table.index_select(0, ids)
        own = ids - self.first_id
        row = own.clamp(self.least, self.most)
        # Not 0.0, which would make a positive zero of a negative one.
        rows = self.table.index_select(0, row).masked_fill_((own != row)[:, None], -0.0)
        return self.group.sum(rows)


class Head(Layer):
    """hidden [M, hidden] -> logits [M, vocab], in float32 at least.

    A head tied to an embedding has no weight of its own to load. Where the backend has a layout of
    its own, a tied head still costs a second copy of the table: rows of it cannot be looked up.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        *,
        tied_to: Embedding | None,
        placement: Placement,
    ) -> None:
        super().__init__()
        self.backend, self.group = placement.backends.linear, placement.group
        self.widths = vocab_widths(vocab_size, placement.mesh.tp_size)
        self.weight: Weight | None = None
        if tied_to is None:
            self.weight = Weight([Block("", (vocab_size, hidden_size), Vocab())], placement)
        # In a list, so that the embedding is not a submodule of two modules.
        self._tied = [] if tied_to is None else [tied_to]

    def finish(self) -> None:
        weight = self._tied[0].weight if self._tied else self.weight
        assert weight is not None, "finish() was called twice"
        plain = weight.data
        self.prepared = op.prepare_wide(plain, is_kept=bool(self._tied), backend=self.backend)
        self.weight = None

    def copied_bytes(self) -> int:
        """What `finish()` will add to the bytes of a tied table."""
        if not self._tied or not op.is_packing(self.backend):
            return 0
        return self._tied[0].weight.nbytes

    def stored_bytes(self) -> int:
        own = self.prepared[1:] if self._tied else self.prepared
        return sum(op.stored_bytes(tensor) for tensor in own)

    def forward(self, hidden: Tensor) -> Tensor:
        own = op.wide_linear(hidden, self.prepared, backend=self.backend)
        return self.group.gather_columns(own, widths=self.widths)
