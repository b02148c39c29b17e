"""Losses and gradients of a batch: eagerly, or compiled and recorded once as a CUDA graph.

Eager steps spend three times the device time on element-wise passes over wide tensors, and more on
launching six thousand small kernels than those take.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch._inductor.config
from torch import nn

from training.tiny.batch import Batch
from training.tiny.losses import Losses, training_losses
from training.tiny.model import Tiny

_WARMUP_STEPS = 3


class LossesAndGradients(Protocol):
    """Leaves the gradients of `losses.total` in the parameters; they and the result are valid
    until the next call."""

    def __call__(self, batch: Batch) -> Losses: ...


class EagerStep:
    def __init__(self, model: Tiny) -> None:
        self._model = model

    def __call__(self, batch: Batch) -> Losses:
        self._model.zero_grad(set_to_none=True)
        losses = training_losses(self._model, batch)
        losses.total.backward()
        return losses.detached()


class RecordedStep:
    """For CUDA, products in bfloat16. All batches must have the shape of the first."""

    def __init__(self, model: Tiny, first: Batch) -> None:
        # Triton 3.6 fails to compile one persistent reduction of the draft attention.
        torch._inductor.config.triton.persistent_reductions = False
        # The chunk rule asks for full float32 where it matters.
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        for layer in (*model.model.layers, model.model.norm, model.mtp):
            assert isinstance(layer, nn.Module)
            layer.compile()
        self._model = model
        self._batch = first
        # A recorded stream must be the one that made the nodes which add up gradients.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARMUP_STEPS):
                model.zero_grad(set_to_none=True)
                self._run()
        model.zero_grad(set_to_none=True)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=stream):
            self._losses = self._run()

    def __call__(self, batch: Batch) -> Losses:
        for mine, new in zip(self._batch.tensors(), batch.tensors(), strict=True):
            mine.copy_(new, non_blocking=True)
        self._graph.replay()
        return self._losses

    def _run(self) -> Losses:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            losses = training_losses(self._model, self._batch)
        losses.total.backward()
        return losses.detached()
