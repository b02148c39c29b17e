"""The arithmetic gate turns red for kernels that are wrong, in this process.

The same gate with the right kernels is the first row of the table: a gate that is red for all says
nothing. Asked are problems whose prompts go on well after the first chunk, as what is lost between
chunks is missed only there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch

from draftmark.engine.source import SHIPPED
from draftmark.kernels.backends import Backends
from draftmark.kernels.gated_delta import CHUNK_TOKENS
from tests.tiny import faults
from tests.tiny.gates import count_right, least_right, line
from tests.tiny.in_process import InProcess
from training.tiny.conversation import Conversation
from training.tiny.evaluate import TASKS, WANTED

[TASK] = (task for task in TASKS if task.name == "arithmetic exact, thinking")
LEAST_PROMPT = CHUNK_TOKENS + 8
# Right answers take 100.
MAX_TOKENS = 112
LEAST_BOUND = 0.20

Fault = Callable[[Backends], AbstractContextManager[Any]]


def given(fault: faults.Gates) -> Fault:
    return lambda backends: faults.with_gates(fault, backends)


@pytest.fixture(scope="module")
def tiny() -> InProcess:
    return InProcess(SHIPPED["tiny"].directory, dtype=torch.bfloat16)


def draw_long(tiny: InProcess, count: int) -> list[Conversation]:
    every = TASK.draw(4 * count)
    return [made for made in every if len(tiny.prompt(made)) >= LEAST_PROMPT][:count]


@pytest.mark.parametrize(
    ("count", "few"),
    [(24, 6), pytest.param(96, 24, marks=[pytest.mark.slow, pytest.mark.timeout(600)])],
    ids=["few", "many"],
)
def test_each_fault_turns_the_gate_red(tiny: InProcess, count: int, few: int) -> None:
    """Faults after which hardly anything is right are seen on a `few`."""
    clamp, backends = faults.Bound(), tiny.stage.placement.backends
    cases: dict[str, tuple[Fault, int]] = {
        "right": (lambda backends: nullcontext(), count),
        "clamp of the sums of gates": (given(clamp.gates), count),
        "state empty at each chunk": (given(faults.emptied), count),
        "gates' sign turned": (given(faults.turned), few),
        "no decay": (given(faults.undecayed), few),
        "prompt's records lost": (faults.without_records, few),
        "stale window": (faults.with_stale_window, few),
    }
    made, wanted, green = draw_long(tiny, count), WANTED[TASK.name], []
    for name, (fault, size) in cases.items():
        with fault(backends):
            texts = tiny.answers(made[:size], max_tokens=MAX_TOKENS)
        right = count_right(TASK, made[:size], texts)
        print(line(name, right, size, wanted))
        green += [name] if right >= least_right(wanted, size) else []
    print(f"the clamp binds at {clamp.share:.0%} of positions")
    assert green == ["right"]
    assert clamp.share >= LEAST_BOUND
