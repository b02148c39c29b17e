"""A prompt of 128k tokens through a small hybrid, and pools beyond 2^31 elements."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from draftmark.cache.spec import PAGE_TOKENS, pages_of
from draftmark.kernels import kv_write
from draftmark.kernels.attention import AttentionShape, VerifyLayout, attend, plan
from draftmark.kernels.backends import Backends
from draftmark.kernels.rope import RopeScaling
from draftmark.layers.batch import Batch, PrefillSpan
from draftmark.layers.weight import Placement, Weight
from draftmark.models.stage import Stage
from draftmark.parallel.mesh import Mesh
from draftmark.runtime.memory import RunLimits, allocate_caches
from tests.fakes.tiny_models import VOCAB, make_config

CPU = torch.device("cpu")
LENGTH = 131_072
LAST = 64


def make_stage() -> Stage:
    """A delta net and attention, with YaRN from a 16th of the length."""
    config = make_config("hybrid", num_layers=3, max_context=LENGTH, num_heads=1, kv_heads=1)
    scaling = RopeScaling(
        kind="yarn", factor=16.0, original_context=LENGTH // 16, attention_factor=1.2
    )
    config = replace(
        config, layers=config.layers[1:], rotary=replace(config.rotary, scaling=scaling)
    )
    placement = Placement(dtype=torch.float32, device=CPU, backends=Backends(), mesh=Mesh())
    stage = Stage(config, layers=range(2), max_context=LENGTH, placement=placement)
    generator = torch.Generator().manual_seed(0)
    for weight in stage.parameters():
        assert isinstance(weight, Weight)
        weight.data.copy_(torch.randn(weight.shape, generator=generator) * 0.2)
    stage.finish()
    return stage


def last_logits(stage: Stage, ids: torch.Tensor, *, chunk: int) -> torch.Tensor:
    """Of the last tokens [LAST, V], by chunks of `chunk`."""
    pages = torch.arange(1, 1 + pages_of(LENGTH), dtype=torch.int32).flip(0)
    caches = allocate_caches(
        stage.cache_specs(torch.float32),
        limits=RunLimits(
            num_pages=len(pages) + 1,
            num_slots=2,
            max_context=LENGTH,
            max_running=1,
            prefill_tokens=chunk,
        ),
        dtype=torch.float32,
        kv_dtype=torch.float32,
        device=CPU,
    )
    none = torch.zeros(0, dtype=torch.int64)
    for start in range(0, LENGTH, chunk):
        positions = torch.arange(start, start + chunk)
        batch = Batch(
            positions=positions,
            store=pages.long()[positions // PAGE_TOKENS] * PAGE_TOKENS + positions % PAGE_TOKENS,
            prefill=(PrefillSpan(offset=0, count=chunk, start=start, pages=pages, slot=1),),
            verify_offset=chunk,
            verify_width=1,
            verify_pages=pages[None, :0].expand(0, -1),
            verify_lengths=none,
            verify_slots=none,
            verify_folds=none,
        )
        out = stage.forward(ids[start : start + chunk], batch, caches.layers)
        assert (out.bad_layer == -1).all()
    return stage.logits(out.hidden[-LAST:])


@pytest.mark.slow
@pytest.mark.timeout(600)
@torch.inference_mode()
def test_a_prompt_of_128k_tokens_is_its_chunks() -> None:
    stage = make_stage()
    ids = torch.randint(0, VOCAB, (LENGTH,), generator=torch.Generator().manual_seed(1))
    whole = last_logits(stage, ids, chunk=LENGTH)
    chunked = last_logits(stage, ids, chunk=4096)
    assert whole.isfinite().all()
    assert (whole - chunked).abs().max() <= 1e-4 * whole.abs().max()
    assert torch.equal(whole.argmax(-1), chunked.argmax(-1))


@pytest.mark.slow
@torch.inference_mode()
def test_a_pool_beyond_32_bits_of_elements() -> None:
    """What is stored in its last page is what is attended to; untouched pages take no memory."""
    shape = AttentionShape(num_heads=2, kv_heads=1, head_dim=64, page_tokens=16, scale=0.125)
    num_pages = 2**31 // (16 * 2 * 64) + 9
    pool = torch.empty((num_pages, 16, 2, 64), dtype=torch.float32)
    assert pool.numel() > 2**31
    kv = torch.randn(1, 2, 64, generator=torch.Generator().manual_seed(0))
    q = torch.randn(1, 2, 64, generator=torch.Generator().manual_seed(1))
    for page in (num_pages - 1, 1):
        store = torch.tensor([page * 16])
        kv_write.kv_write(pool, kv=kv, store=store, backend="torch")
        verify = VerifyLayout(
            offset=0,
            width=1,
            pages=torch.tensor([[page]], dtype=torch.int32),
            lengths=torch.tensor([0]),
            store=store,
        )
        step = plan(shape, prefill=(), verify=verify, dtype=torch.float32, backend="torch")
        out = attend(q, pool=pool, plan=step)
        torch.testing.assert_close(out.view(2, 64), kv[0, 1].expand(2, 64))
