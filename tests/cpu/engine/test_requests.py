"""What a request must fit is refused by name; what it leaves out is filled in."""

from __future__ import annotations

import pytest

from draftmark.core.errors import ContextOverflow, RequestError
from draftmark.core.request import MAX_STOP_IDS, SamplingParams
from draftmark.engine.requests import ModelLimits, RequestMaker

LIMITS = ModelLimits(vocab_size=100, max_context=20, eos_ids=(2, 3), max_drafts=3)


def _maker() -> RequestMaker:
    return RequestMaker(LIMITS, seed=5)


def test_no_max_tokens_is_the_rest_of_the_context() -> None:
    request = _maker().make(1, [4, 5, 6], SamplingParams())
    assert request.sampling.max_tokens == 17
    assert request.stop_ids == (2, 3)


def test_seeds_are_drawn_in_order_from_one_seed() -> None:
    first, second = _maker(), _maker()
    drawn = [first.make(i, [1], SamplingParams()).seed for i in range(3)]
    assert drawn == [second.make(i, [1], SamplingParams()).seed for i in range(3)]
    assert len(set(drawn)) == 3
    assert first.make(9, [1], SamplingParams(seed=-4)).seed == -4


def test_stop_ids_are_the_models_and_the_clients() -> None:
    sampling = SamplingParams(stop_token_ids=(7, 3))
    assert _maker().make(1, [1], sampling).stop_ids == (2, 3, 7)
    ignoring = SamplingParams(stop_token_ids=(7,), ignore_eos=True)
    assert _maker().make(1, [1], ignoring).stop_ids == (7,)


@pytest.mark.parametrize(
    ("prompt", "sampling", "param", "numbers"),
    [
        ([], SamplingParams(), "prompt", ()),
        ([1, 100], SamplingParams(), "prompt", ("100", "99")),
        ([1, -1], SamplingParams(), "prompt", ("-1",)),
        ([1] * 20, SamplingParams(), "prompt", ("20",)),
        ([1] * 15, SamplingParams(max_tokens=6), "max_tokens", ("15", "6", "20")),
        ([1] * 15, SamplingParams(min_tokens=6), "min_tokens", ("15", "6", "20")),
        ([1], SamplingParams(stop=("x" * 2000,)), "stop", ("2000",)),
        ([1], SamplingParams(top_p=0.0), "top_p", ()),
        ([1], SamplingParams(stop_token_ids=(100,)), "stop_token_ids", ("100",)),
        ([1], SamplingParams(draft_tokens=4), "draft_tokens", ("4", "3")),
        ([1], SamplingParams(draft_tokens=9), "draft_tokens", ("9", "8")),
        (
            [1],
            SamplingParams(stop_token_ids=tuple(range(10, 10 + MAX_STOP_IDS))),
            "stop_token_ids",
            (str(MAX_STOP_IDS),),
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    prompt: list[int], sampling: SamplingParams, param: str, numbers: tuple[str, ...]
) -> None:
    with pytest.raises(RequestError) as caught:
        _maker().make(1, prompt, sampling)
    assert caught.value.param == param
    assert all(number in caught.value.message for number in numbers)


def test_overflow_has_its_own_code() -> None:
    with pytest.raises(ContextOverflow):
        _maker().make(1, [1] * 20, SamplingParams())
