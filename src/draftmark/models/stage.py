"""A stage: optional embedding, `layers[a:b]` under their global numbers, optional norm and head.

How the runtime uses the model side (one rank, everything under `torch.inference_mode()`):

    description = models.config.describe(model_dir)      # ModelFacts + family + translated config
    backends = kernels.backends.choose(device, dtype=dtype)   # .report() is a dict op -> name
    stage = models.stage.build(
        description, dtype=dtype, device=device, max_context=n, backends=backends
    )                                                     # allocates parameters, uninitialised
    models.checkpoint.load(
        stage, model_dir, description=description, progress=lambda done_bytes, total_bytes: None
    )                                                     # returns bytes read
    stage.finish()                                        # packs weights; load is over
    stage.cache_specs(kv_dtype, max_drafts=k)  # list[CacheSpec], in the order of `caches`
    stage.weight_bytes()           # bytes held after finish()
    stage.workspace_bytes(tokens=, logits_rows=, context=)  # upper bound of a step's temporaries

    out = stage.forward(ids, batch, caches)               # ids int64 [N], or hidden [N, hidden]
    out.hidden                     # [N, hidden] in `dtype`; after the final norm on the last stage
    out.bad_layer                  # [N] int32: first layer (global number) whose output had a
                                   # non-finite value in this token's row, -1 for none
    logits = stage.logits(out.hidden[rows])               # [M, vocab], float32 at least

Several tensor ranks: `build` takes the rank's `mesh` and `group`; each rank has its part of the
weights and its own KV heads, every call is made by all ranks with the same inputs, and hidden,
bad_layer and logits are the same bits on all.

`caches` has one entry a layer, in layer order and those of the MTP head last, made by their specs:
of an attention layer the pages [num_pages, page_tokens, 2 * kv_heads, head_dim] with keys before
values, of a recurrent layer a `RecurrentCache` of all slots; of the MTP head its layer's, and the
hidden states behind pages [num_pages, hidden], which the stage leaves to others. They may hold
anything, NaN included, where nothing was stored. The forward writes this step's keys and values to
`batch.store` before it attends, and moves the states of its rows on. Nothing is kept between calls
but parameters. A row's result does not depend on the other rows of the batch beyond rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from draftmark.cache.spec import CacheSpec, HiddenSpec
from draftmark.kernels import attention, sentinel
from draftmark.kernels.backends import Backends
from draftmark.kernels.linear import WIDE_CANDIDATES
from draftmark.layers.attention import Attention
from draftmark.layers.batch import Batch
from draftmark.layers.decoder import DecoderConfig, DecoderLayer
from draftmark.layers.embedding import Embedding, Head
from draftmark.layers.mtp import MTPHead
from draftmark.layers.norm import RMSNorm
from draftmark.layers.recurrent import LayerCache
from draftmark.layers.rotary import Rotary
from draftmark.layers.step import StageStep, attention_step, recurrent_step
from draftmark.layers.weight import Layer, Placement
from draftmark.models.config import Description
from draftmark.parallel.collectives import Alone, TensorGroup, Unconnected
from draftmark.parallel.mesh import Mesh


class StageOutput(NamedTuple):
    hidden: Tensor
    bad_layer: Tensor


class Stage(nn.Module):
    """See the module's docstring. `layers["12"]` is the model's layer 12 in any stage."""

    def __init__(
        self,
        config: DecoderConfig,
        *,
        layers: range,
        max_context: int,
        placement: Placement,
        with_mtp: bool = False,
    ) -> None:
        """The last stage has the MTP head, if `with_mtp`."""
        super().__init__()
        self.config, self.placement = config, placement
        self.embeds, is_last = layers.start == 0, layers.stop == config.num_layers
        vocab_size, hidden_size = config.vocab_size, config.hidden_size
        self.embedding: Embedding | None = None
        if self.embeds or (is_last and (config.tied_head or with_mtp)):
            self.embedding = Embedding(vocab_size, hidden_size, placement=placement)
        blocks = {
            str(n): DecoderLayer(config, config.layers[n], layer=n, placement=placement)
            for n in layers
        }
        self.layers = nn.ModuleDict(blocks)
        self.blocks = tuple(blocks.values())
        self.norm: RMSNorm | None = None
        self.head: Head | None = None
        if is_last:
            self.norm = RMSNorm(hidden_size, config.norm, placement=placement)
            tied_to = self.embedding if config.tied_head else None
            self.head = Head(vocab_size, hidden_size, tied_to=tied_to, placement=placement)
        self.mtp: MTPHead | None = None
        if is_last and with_mtp:
            self.mtp = MTPHead(config, placement=placement)
        mixers = [block.mixer for block in self.blocks]
        attention_layers = [mixer for mixer in mixers if isinstance(mixer, Attention)]
        self.is_recurrent = len(attention_layers) < len(mixers)
        self.shape = attention_layers[0].shape() if attention_layers else None
        if self.mtp is not None:
            mixer = self.mtp.layer.mixer
            assert isinstance(mixer, Attention), "a head that drafts has pages"
            self.draft_shape = mixer.shape()
        self.rotary: Rotary | None = None
        if attention_layers or self.mtp is not None:
            self.rotary = Rotary(config.rotary, max_context=max_context, placement=placement)
        self.blame = _blame(layers, ends=is_last).to(placement.device)

    def forward(self, inputs: Tensor, batch: Batch, caches: Sequence[LayerCache]) -> StageOutput:
        hidden = inputs
        if self.embeds:
            assert self.embedding is not None
            hidden = self.embedding(inputs)
        step = self._step(batch)
        scales: list[Tensor] = []
        for block, cache in zip(self.blocks, caches[: len(self.blocks)], strict=True):
            hidden = block(hidden, step, cache, scales)
        if self.norm is not None:
            hidden, scale = self.norm(hidden)
            scales.append(scale)
        bad_layer = sentinel.first_bad_layer(
            scales, layers=self.blame, backend=self.placement.backends.sentinel
        )
        return StageOutput(hidden, bad_layer)

    def draft(self, ids: Tensor, hidden: Tensor, batch: Batch, cache: LayerCache) -> Tensor:
        """One use of the MTP head: ids [N] that follow `hidden` [N, hidden] -> [N, hidden], which
        goes to `logits`, or here again as `hidden`. Entry i of its pages, written to `cache`, is of
        the token at i and the hidden state before it."""
        assert self.mtp is not None and self.embedding is not None and self.rotary is not None
        own = attention_step(
            batch, shape=self.draft_shape, rotary=self.rotary, placement=self.placement
        )
        return self.mtp(self.embedding(ids), hidden, StageStep(attention=own), cache, [])

    def logits(self, hidden: Tensor) -> Tensor:
        """Rows of `forward`'s hidden [M, hidden] -> [M, vocab], float32 at least.

        Only the last stage has a head.
        """
        assert self.head is not None, "this stage has no head"
        return self.head(hidden)

    def finish(self) -> None:
        """Pack the weights, a layer at a time, and drop the plain ones."""
        for layer in self._holders():
            layer.finish()

    def cache_specs(self, kv_dtype: torch.dtype, *, max_drafts: int = 0) -> list[CacheSpec]:
        """`max_drafts` is how many drafts a verify row runs at most."""
        blocks = self.blocks if self.mtp is None else (*self.blocks, self.mtp.layer)
        specs: list[CacheSpec] = [
            block.mixer.cache_spec(kv_dtype, max_drafts=max_drafts) for block in blocks
        ]
        if self.mtp is not None:
            specs.append(
                HiddenSpec(
                    layer=self.config.num_layers,
                    hidden_size=self.config.hidden_size,
                    dtype_bytes=self.placement.dtype.itemsize,
                )
            )
        return specs

    def weight_bytes(self) -> int:
        """Bytes of weights and rotary tables held after `finish()`."""
        return sum(layer.stored_bytes() for layer in self._holders()) + self._table_bytes()

    def planned_bytes(self) -> int:
        """What `weight_bytes()` will be, known before anything is loaded (meta device included)."""
        plain = sum(weight.nbytes for weight in self.parameters())
        copied = 0 if self.head is None else self.head.copied_bytes()
        return plain + copied + self._table_bytes()

    def workspace_bytes(self, *, tokens: int, logits_rows: int, context: int) -> int:
        """Upper bound of a step's temporaries: `tokens` in the step, `logits_rows` rows that sample
        of `context` tokens each."""
        hidden_size = self.config.hidden_size
        ranks, itemsize = self.placement.mesh.tp_size, self.placement.dtype.itemsize
        per_token = (5 * hidden_size + context) * itemsize
        blocks = self.blocks if self.mtp is None else (*self.blocks, self.mtp.layer)
        per_token += max(block.token_bytes() for block in blocks)
        if ranks > 1:
            # Every rank's part of a sum, and two of the sums on the way.
            per_token += hidden_size * (ranks * itemsize + 2 * max(itemsize, 4))
        shapes = [self.shape, None if self.mtp is None else self.draft_shape]
        gathered = max(
            attention.workspace_bytes(shape, rows=logits_rows, context=context, itemsize=itemsize)
            if shape is not None
            else 0
            for shape in shapes
        )
        logits = 0 if self.head is None else logits_rows * self._logits_bytes()
        fixed = max(block.fixed_bytes() for block in blocks)
        return tokens * per_token + fixed + gathered + logits

    def _step(self, batch: Batch) -> StageStep:
        own = None
        if self.shape is not None:
            assert self.rotary is not None
            own = attention_step(
                batch, shape=self.shape, rotary=self.rotary, placement=self.placement
            )
        return StageStep(
            attention=own, recurrent=recurrent_step(batch) if self.is_recurrent else None
        )

    def _table_bytes(self) -> int:
        return 0 if self.rotary is None else self.rotary.table.nbytes

    def _logits_bytes(self) -> int:
        """Of one row."""
        assert self.head is not None
        widest, itemsize = max(self.head.widths), self.placement.dtype.itemsize
        wide = max(itemsize, 4)
        # Rounded by the head and in float32, and the rows that the best are made again from.
        own = (itemsize + wide) * (widest + WIDE_CANDIDATES * self.config.hidden_size)
        ranks = self.placement.mesh.tp_size
        if ranks == 1:
            return own
        # Padded to the widest, every rank's, and side by side.
        return own + wide * ((1 + ranks) * widest + self.config.vocab_size)

    def _holders(self) -> list[Layer]:
        return [module for module in self.modules() if isinstance(module, Layer)]


def build(
    description: Description,
    *,
    dtype: torch.dtype,
    device: torch.device,
    max_context: int,
    backends: Backends,
    layers: range | None = None,
    with_mtp: bool = False,
    mesh: Mesh = Mesh(),  # noqa: B008 - a frozen value
    group: TensorGroup | None = None,
) -> Stage:
    """The stage of `layers` (all by default) with uninitialised weights; see `checkpoint.load`.

    Without a `group` a stage of several tensor ranks can be measured, not run. Raises `ConfigError`
    when the model does not divide over the ranks.
    """
    if group is None:
        alone = mesh.tp_size == 1
        group = Alone() if alone else Unconnected(rank=mesh.tp_rank, size=mesh.tp_size)
    placement = Placement(dtype=dtype, device=device, backends=backends, mesh=mesh, group=group)
    config = description.config
    return Stage(
        config,
        layers=range(config.num_layers) if layers is None else layers,
        max_context=max_context,
        placement=placement,
        with_mtp=with_mtp,
    )


def _blame(layers: range, *, ends: bool) -> Tensor:
    """Layer to blame for each norm scale: that before a layer's input, the layer in its middle."""
    blame = []
    for layer in layers:
        blame += [max(layer - 1, 0), layer]
    return torch.tensor(blame + ([layers.stop - 1] if ends else []), dtype=torch.int32)
