"""Random tiny stages whose weights are the same whoever holds which part of them."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import torch
from torch import Tensor

from draftmark.cache.spec import PAGE_TOKENS, pages_of
from draftmark.kernels.backends import REFERENCE, Backends
from draftmark.layers.batch import Batch, PrefillSpan
from draftmark.layers.decoder import DecoderConfig
from draftmark.layers.weight import Placement, Weight
from draftmark.models.stage import Stage
from draftmark.parallel.collectives import TensorGroup
from draftmark.parallel.mesh import Mesh
from draftmark.runtime.memory import RunLimits, allocate_caches
from tests.fakes import tiny_models

CPU = torch.device("cpu")
MAX_CONTEXT = 64


def make_config(
    family: str = "llama", *, num_layers: int = 2, kv_heads: int = 4, **sizes: int
) -> DecoderConfig:
    """`llama` has biases everywhere."""
    return tiny_models.make_config(
        family,
        num_layers=num_layers,
        kv_heads=kv_heads,
        max_context=MAX_CONTEXT,
        has_biases=True,
        **sizes,
    )


def make_stage(
    config: DecoderConfig,
    group: TensorGroup,
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device = CPU,
    backends: Backends = REFERENCE,
    layers: range | None = None,
) -> Stage:
    """Not filled and not finished."""
    mesh = Mesh(tp_rank=group.rank, tp_size=group.size)
    placement = Placement(dtype=dtype, device=device, backends=backends, mesh=mesh, group=group)
    layers = range(config.num_layers) if layers is None else layers
    return Stage(config, layers=layers, max_context=MAX_CONTEXT, placement=placement)


def fill(stage: Stage) -> Stage:
    """Every weight is random by its name; finishes the stage."""
    for name, weight in stage.named_parameters():
        assert isinstance(weight, Weight)
        for block, target in weight.targets():
            generator = torch.Generator().manual_seed(zlib.crc32(f"{name}/{block}".encode()))
            values = torch.randn(target.shape, generator=generator, dtype=torch.float64)
            values = 1 + 0.1 * values if "norm" in name else values * 0.35
            target.view.copy_(values[target.part])
    stage.finish()
    return stage


class Output(NamedTuple):
    """Of all tokens that `Runner.feed` was given."""

    hidden: Tensor  # [N, hidden]
    logits: Tensor  # [N, V]
    bad_layer: Tensor  # [N]


class Runner:
    """One sequence through a stage: a prefill of any length, then verify rows of any width."""

    def __init__(self, stage: Stage, *, context: int = MAX_CONTEXT) -> None:
        self.stage, dtype = stage, stage.placement.dtype
        num_pages = pages_of(context)
        self._pages = torch.arange(1, num_pages + 1, dtype=torch.int32).flip(0)
        self.caches = allocate_caches(
            stage.cache_specs(dtype),
            limits=RunLimits(
                num_pages=num_pages + 1,
                num_slots=2,
                max_context=context,
                max_running=1,
                prefill_tokens=context,
            ),
            dtype=dtype,
            kv_dtype=dtype,
            device=CPU,
        )
        self.caches.fill(torch.nan)
        self._length = self._fold = 0

    @torch.inference_mode()
    def feed(self, inputs: Tensor) -> Output:
        """ids [N], or the hidden [N, hidden] of the stage before. No logits but on the last. What
        follows the prefill is one verify row, or of a recurrent stage one a token."""
        if self._length and self.stage.is_recurrent and len(inputs) > 1:
            parts = [self.feed(inputs[i : i + 1]) for i in range(len(inputs))]
            return Output(*(torch.cat(values) for values in zip(*parts, strict=True)))
        first, count = self._length, inputs.shape[0]
        self._length += count
        positions = torch.arange(first, first + count)
        places = self._pages.long()[positions // PAGE_TOKENS] * PAGE_TOKENS
        is_prefill = first == 0
        span = PrefillSpan(offset=0, count=count, start=0, pages=self._pages, slot=1)
        batch = Batch(
            positions=positions,
            store=places + positions % PAGE_TOKENS,
            prefill=(span,) if is_prefill else (),
            verify_offset=count if is_prefill else 0,
            verify_width=1 if is_prefill else count,
            verify_pages=self._pages[None, :].expand(0 if is_prefill else 1, -1),
            verify_lengths=torch.full((0 if is_prefill else 1,), first),
            verify_slots=torch.ones(0 if is_prefill else 1, dtype=torch.int64),
            verify_folds=torch.full((0 if is_prefill else 1,), self._fold),
        )
        self._fold = 0 if is_prefill else count
        out = self.stage.forward(inputs, batch, self.caches.layers)
        has_head = self.stage.head is not None
        logits = self.stage.logits(out.hidden) if has_head else torch.empty(count, 0)
        return Output(hidden=out.hidden, logits=logits, bad_layer=out.bad_layer)
