"""Rotary embedding: both backends, the angles, and the scalings against transformers' own."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from draftmark.kernels import rope
from draftmark.kernels.rope import RopeScaling

CPU = torch.device("cpu")
BACKENDS = ("reference", "torch")


def make_table(dim: int, scaling: RopeScaling = RopeScaling()) -> rope.RopeTable:  # noqa: B008
    return rope.build_table(
        64, dim=dim, theta=100.0, scaling=scaling, dtype=torch.float64, device=CPU
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_pair_turns_by_position_times_frequency(backend: str) -> None:
    dim = 6
    positions = torch.tensor([0, 1, 7, 63])
    x = torch.randn(4, 3, dim, dtype=torch.float64)
    turned = x.clone()
    rows = make_table(dim).rows(positions, dtype=torch.float64)
    assert rope.apply_(turned, rows, backend=backend) is None
    for n, position in enumerate(positions.tolist()):
        for pair in range(dim // 2):
            angle = position * 100.0 ** (-2 * pair / dim)
            turn = complex(math.cos(angle), math.sin(angle))
            for head in range(3):
                got = complex(turned[n, head, pair], turned[n, head, pair + dim // 2])
                want = turn * complex(x[n, head, pair], x[n, head, pair + dim // 2])
                assert abs(got - want) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_torch_equals_the_reference_and_writes_only_its_heads(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    whole = torch.randn(5, 7, 8).to(dtype)
    rows = make_table(8).rows(torch.tensor([3, 0, 9, 60, 21]), dtype=dtype)
    done = {}
    for backend in BACKENDS:
        copy = whole.clone()
        rope.apply_(copy.narrow(1, 0, 4), rows, backend=backend)
        assert torch.equal(copy[:, 4:], whole[:, 4:])
        done[backend] = copy
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(done["torch"], done["reference"], rtol=2 * step, atol=4 * step)


def test_scores_depend_on_the_distance_only() -> None:
    torch.manual_seed(2)
    q, k = torch.randn(2, 1, 1, 16, dtype=torch.float64)
    scores = []
    for shift in (0, 5, 40):
        pair = []
        for x, position in ((q, 11 + shift), (k, 4 + shift)):
            copy = x.clone()
            rows = make_table(16).rows(torch.tensor([position]), dtype=torch.float64)
            rope.apply_(copy, rows, backend="torch")
            pair.append(copy)
        scores.append(float((pair[0] * pair[1]).sum()))
    assert max(scores) - min(scores) < 1e-12


SCALINGS = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "yarn": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32768,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
    },
}


@pytest.mark.parametrize("kind", SCALINGS)
def test_scaled_frequencies_are_those_of_transformers(kind: str) -> None:
    parameters = {"rope_theta": 500000.0, **SCALINGS[kind]}
    config = LlamaConfig(
        hidden_size=512,
        num_attention_heads=4,
        max_position_embeddings=131072,
        rope_parameters=parameters,
    )
    theirs, factor = ROPE_INIT_FUNCTIONS[kind](config, CPU)
    given = {key: value for key, value in SCALINGS[kind].items() if key != "rope_type"}
    given["original_context"] = given.pop("original_max_position_embeddings", 0)
    if kind == "yarn":
        given["attention_factor"] = rope.yarn_attention_factor(4.0)
    scaling = RopeScaling(kind=kind, **given)
    ours = rope.inverse_frequencies(128, theta=500000.0, scaling=scaling)
    torch.testing.assert_close(ours.float(), theirs, rtol=1e-6, atol=0)
    assert scaling.attention_factor == pytest.approx(factor)


def test_an_unknown_scaling_is_refused() -> None:
    with pytest.raises(ValueError, match="'longrope' is not built"):
        rope.inverse_frequencies(8, theta=1e4, scaling=RopeScaling(kind="longrope"))
