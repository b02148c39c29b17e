"""Random prompts: exact, the same in every process, and never two that begin alike (H05)."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from draftmark.bench.profile import PromptSource
from draftmark.bench.prompts.prompt import HEAD_TOKENS, Prompt, check_heads
from draftmark.bench.prompts.random_ids import draw_ids, random_prompts, salt_of
from draftmark.core.errors import ConfigError

ALLOWED = np.arange(20, 49_000, dtype=np.uint32)


def heads(prompts: list[Prompt]) -> set[str]:
    """Hashes of the first block of each."""
    return {
        hashlib.sha256(str((prompt.ids or [])[:HEAD_TOKENS]).encode()).hexdigest()
        for prompt in prompts
    }


def test_prompts_have_the_exact_length_and_allowed_ids() -> None:
    prompts = random_prompts(ALLOWED, count=8, length=100, salt="a/1")
    assert [len(prompt.ids or []) for prompt in prompts] == [100] * 8
    assert all(20 <= token < 49_000 for prompt in prompts for token in prompt.ids or [])


def test_the_lead_counts_and_is_all_that_prompts_share() -> None:
    prompts = random_prompts(ALLOWED, count=4, length=32, salt="a/1", lead=[1])
    assert [len(prompt.ids or []) for prompt in prompts] == [32] * 4
    assert {tuple((prompt.ids or [])[:1]) for prompt in prompts} == {(1,)}
    assert len({tuple((prompt.ids or [])[:17]) for prompt in prompts}) == 4


def test_cells_runs_and_seeds_share_no_first_block() -> None:
    """The same defaults on one live server, again and in another order, must not hit its cache."""
    salts = [salt_of(run, seed) for run in ("one", "two", "three") for seed in (1, 2)]
    runs = [random_prompts(ALLOWED, count=64, length=64, salt=salt) for salt in salts]
    lengths = [random_prompts(ALLOWED, count=64, length=32, salt="four/1")]
    found = [heads(prompts) for prompts in runs + lengths]
    assert len(set().union(*found)) == sum(len(one) for one in found) == 64 * 7


def test_the_same_salt_gives_the_same_prompts_in_another_process() -> None:
    code = (
        "import numpy as np\n"
        "from draftmark.bench.prompts.random_ids import draw_ids\n"
        "print(draw_ids(np.arange(20, 49000, dtype=np.uint32), 8, key='a/0').tolist())"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert printed.strip() == str(draw_ids(ALLOWED, 8, key="a/0").tolist())


def test_more_ids_of_a_key_begin_with_the_same() -> None:
    assert draw_ids(ALLOWED, 50, key="k").tolist()[:9] == draw_ids(ALLOWED, 9, key="k").tolist()


def test_too_few_ids_to_draw_from_are_refused() -> None:
    with pytest.raises(ConfigError, match="only 10 token ids"):
        draw_ids(ALLOWED[:10], 4, key="k")


def test_a_prompt_that_is_all_lead_is_refused() -> None:
    with pytest.raises(ConfigError, match="all taken by the 2"):
        random_prompts(ALLOWED, count=1, length=2, salt="a", lead=[1, 2])


def test_two_prompts_that_begin_alike_are_refused() -> None:
    begin = list(range(HEAD_TOKENS))
    prompts = [Prompt(ids=[*begin, 1]), Prompt(ids=[9, *begin]), Prompt(ids=[*begin, 2])]
    with pytest.raises(ConfigError, match="prompts 0 and 2 begin with the same 16 tokens"):
        check_heads(prompts, source=PromptSource.LEDGER)
