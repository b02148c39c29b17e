"""What compiled kernels share, and that nothing loads numba before one is called."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from draftmark.kernels.backends import available, has_numba

CPU = torch.device("cpu")
if not has_numba(CPU, torch.float32):
    pytest.skip("numba is not installed", allow_module_level=True)

from draftmark.kernels import jit  # noqa: E402


@jit.Kernel
def _exponentials(words: Any) -> None:
    """out = e^x and, behind it, sigmoid(x); an item is a number."""
    x, out = jit.floats_at(words[2]), jit.floats_at(words[3])
    item = jit.take(words)
    while item < words[1]:
        out[item] = jit.exp(x[item])
        out[words[1] + item] = jit.sigmoid(x[item])
        item = jit.take(words)


@jit.Kernel
def _round(words: Any) -> None:
    """float32 to bf16; an item is a row."""
    x, out = jit.rows(words, 3), jit.rows(words, 7)
    item = jit.take(words)
    while item < words[1]:
        jit.narrow(out, item, 0, jit.floats_at(x[0] + 4 * item * x[2]), words[2])
        item = jit.take(words)


@jit.Kernel
def _count(words: Any) -> None:
    counts = jit.ints_at(words[2])
    item = jit.take(words)
    while item < words[1]:
        counts[item] += 1
        item = jit.take(words)


@jit.Kernel
def _reverse(words: Any) -> None:
    """Two parts with a counter each: the second reads what other threads wrote in the first."""
    first, second = jit.ints_at(words[2]), jit.ints_at(words[3])
    item = jit.take(words)
    while item < words[1]:
        first[item] = item + 1
        item = jit.take(words)
    jit.wait(words[4])
    item = jit.take_by(words, 5)
    while item < words[1]:
        second[item] = first[words[1] - 1 - item]
        item = jit.take_by(words, 5)


def exponentials(x: Tensor) -> Tensor:
    out = torch.empty(2, len(x))
    _exponentials(len(x), x.data_ptr(), out.data_ptr(), is_shared=False)
    return out


def test_exponentials_are_right_to_two_units_in_the_last_place() -> None:
    x = torch.linspace(-87.2, 88.7, 200_001)
    out = exponentials(x)
    step = torch.finfo(torch.float32).eps
    torch.testing.assert_close(out[0].double(), x.double().exp(), rtol=2 * step, atol=0)
    torch.testing.assert_close(out[1].double(), x.double().sigmoid(), rtol=4 * step, atol=0)


def test_exponentials_end_in_zero_infinity_and_nan() -> None:
    inf, nan = torch.inf, torch.nan
    out = exponentials(torch.tensor([-inf, -1e30, -88.0, 0.0, 88.8, 1e30, inf, nan]))
    assert out[0].tolist()[:-1] == [0.0, 0.0, 0.0, 1.0, inf, inf, inf]
    assert out[1].tolist()[:-1] == [0.0, 0.0, out[1, 2].item(), 0.5, 1.0, 1.0, 1.0]
    assert out[:, -1].isnan().all() and 0 <= out[1, 2] < 1e-37


def test_bf16_is_rounded_as_torch_rounds() -> None:
    """All halves of a step, the largest numbers, the smallest, and what is none."""
    bits = torch.arange(-(2**31), 2**31, 0x7FF1, dtype=torch.int64).to(torch.int32)
    middles = torch.arange(0, 2**15, dtype=torch.int32) * 2**16 + 2**15
    x = torch.cat((bits, middles)).view(torch.float32)[None]
    out = torch.empty(x.shape, dtype=torch.bfloat16)
    _round(1, x.shape[1], *jit.words_of(x), *jit.words_of(out), is_shared=False)
    torch.testing.assert_close(out, x.bfloat16(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_take_every_item_once(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    counts = torch.zeros(10_000, dtype=torch.int64)
    for _ in range(3):
        _count(len(counts), counts.data_ptr(), is_shared=True)
    torch.set_num_threads(before)
    assert (counts == 3).all()


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(TypeError, match="float16"):
        jit.words_of(torch.zeros(1, 1, dtype=torch.float16))


def test_numba_is_loaded_by_the_first_call_only() -> None:
    code = (
        "import sys, torch\n"
        "from draftmark.kernels import causal_conv, gated_delta, norm\n"
        "assert 'numba' not in sys.modules\n"
        "norm.prepare(torch.ones(2), backend='numba')\n"
        "assert 'numba' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("op", ["causal_conv", "gated_delta", "norm"])
def test_it_comes_first_where_it_can_run(op: str) -> None:
    for dtype in (torch.bfloat16, torch.float32):
        assert available(op, device=CPU, dtype=dtype)[0] == "numba"
    for dtype in (torch.float16, torch.float64):
        assert "numba" not in available(op, device=CPU, dtype=dtype)
    assert "numba" not in available(op, device=torch.device("cuda"), dtype=torch.bfloat16)


@pytest.mark.parametrize("is_shared", [True, False])
def test_threads_wait_for_one_another_between_the_parts(is_shared: bool) -> None:
    count = 257
    for _ in range(200):
        first, second = torch.zeros(2, count, dtype=torch.int64)
        _reverse(count, first.data_ptr(), second.data_ptr(), jit.BARRIER, 0, is_shared=is_shared)
        assert torch.equal(second, torch.arange(count, 0, -1))
