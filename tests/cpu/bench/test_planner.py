"""Bodies as they go out: every field explicit, and what the server cannot do refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from draftmark.bench.adapters.base import FULL_SAMPLING, Accepts
from draftmark.bench.planner import Target, plan_requests
from draftmark.bench.profile import Endpoint, Mode, Profile, Sampling
from draftmark.bench.prompts.prompt import Prompt
from draftmark.bench.request import PlannedRequest
from draftmark.core.errors import ConfigError
from tests.fakes.bench_tokens import file_tokenizer

PROFILE = Profile(name="p", n_requests=2, isl=3, osl=5)
EVERYTHING = Accepts(
    sampling=FULL_SAMPLING, ignore_eos=True, token_ids=True, continuous_usage=True, tokenize=True
)
TARGET = Target(model="m", accepts=EVERYTHING)
IDS = [Prompt(ids=[1, 2, 3], window=(10, 13)), Prompt(ids=[4, 5, 6], window=(13, 16))]


def body(plan: PlannedRequest) -> dict[str, Any]:
    return msgspec.json.decode(plan.body, type=dict[str, Any])


def changed(**fields: Any) -> Profile:
    return msgspec.structs.replace(PROFILE, **fields)


def test_a_body_has_every_sampling_field_that_the_server_takes() -> None:
    plan = plan_requests(PROFILE, IDS, TARGET)[0]
    assert body(plan) == {
        "model": "m",
        "prompt": [1, 2, 3],
        "max_tokens": 5,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "ignore_eos": True,
    }


def test_a_plan_says_what_its_body_holds() -> None:
    plans = plan_requests(PROFILE, IDS, TARGET)
    assert [plan.index for plan in plans] == [0, 1]
    assert [plan.window for plan in plans] == [(10, 13), (13, 16)]
    first = plans[0]
    assert (first.path, first.at_s, first.max_tokens) == ("/v1/completions", None, 5)
    assert (first.ignore_eos, first.num_prompt_tokens) == (True, 3)
    assert first.prompt_sha == IDS[0].sha256 != plans[1].prompt_sha


def test_a_plain_openai_server_gets_only_what_it_takes() -> None:
    target = Target(model="m", accepts=Accepts())
    sent = body(plan_requests(changed(ignore_eos=False), IDS, target)[0])
    assert set(sent) == {
        "model",
        "prompt",
        "max_tokens",
        "stream",
        "stream_options",
        "temperature",
        "top_p",
        "presence_penalty",
        "frequency_penalty",
    }
    assert sent["stream_options"] == {"include_usage": True}


def test_off_is_written_as_the_server_has_it() -> None:
    accepts = msgspec.structs.replace(EVERYTHING, top_k_off=-1)
    target = Target(model="m", accepts=accepts)
    assert body(plan_requests(PROFILE, IDS, target)[0])["top_k"] == -1
    forty = changed(sampling=Sampling(top_k=40))
    assert body(plan_requests(forty, IDS, target)[0])["top_k"] == 40


def test_token_ids_are_asked_for_where_usage_does_not_grow() -> None:
    accepts = msgspec.structs.replace(EVERYTHING, continuous_usage=False)
    sent = body(plan_requests(PROFILE, IDS, Target(model="m", accepts=accepts))[0])
    assert sent["return_token_ids"] is True


def test_each_request_has_a_seed_of_its_own() -> None:
    plans = plan_requests(changed(sampling=Sampling(temperature=1.0, seed=7)), IDS, TARGET)
    assert [body(plan)["seed"] for plan in plans] == [7, 8]


def test_a_prompt_may_say_how_long_its_answer_is() -> None:
    plan = plan_requests(PROFILE, [Prompt(ids=[1], osl=99)], TARGET)[0]
    assert (body(plan)["max_tokens"], plan.max_tokens) == (99, 99)


def test_times_of_an_open_loop(tmp_path: Path) -> None:
    profile = changed(mode=Mode.POISSON, rate=2.0)
    plans = plan_requests(profile, IDS, TARGET, times=[0.0, 0.5])
    assert [plan.at_s for plan in plans] == [0.0, 0.5]
    with pytest.raises(ConfigError, match="times of requests do not go together"):
        plan_requests(PROFILE, IDS, TARGET, times=[0.0, 0.5])
    with pytest.raises(ConfigError, match="times of requests do not go together"):
        plan_requests(profile, IDS, TARGET)


def test_ids_as_text_are_counted_anew(tmp_path: Path) -> None:
    """Two tokens whose text one token stands for: the server will find one."""
    tokenizer = file_tokenizer(tmp_path, bos=True)
    (t, h) = (tokenizer.encode("t")[0], tokenizer.encode("h")[0])
    prompt = Prompt(ids=[*tokenizer.lead, t, h], num_lead=1)
    profile = changed(endpoint=Endpoint.COMPLETIONS)
    plan = plan_requests(profile, [prompt], TARGET, tokenizer=tokenizer)[0]
    assert body(plan)["prompt"] == "th"
    assert plan.num_prompt_tokens == 2


def test_texts_go_out_as_each_endpoint_takes_them(tmp_path: Path) -> None:
    tokenizer = file_tokenizer(tmp_path, bos=True)
    prompt = [Prompt(text="a the")]

    def plan(endpoint: Endpoint, **known: Any) -> PlannedRequest:
        profile = changed(endpoint=endpoint)
        return plan_requests(profile, prompt, TARGET, **known)[0]

    as_ids = plan(Endpoint.COMPLETIONS_IDS, tokenizer=tokenizer)
    assert body(as_ids)["prompt"] == [*tokenizer.lead, *tokenizer.encode("a the")]
    chat = plan(Endpoint.CHAT)
    assert chat.path == "/v1/chat/completions"
    assert body(chat)["messages"] == [{"role": "user", "content": "a the"}]
    assert chat.num_prompt_tokens is None
    counted = plan(Endpoint.CHAT, tokenizer=tokenizer, template_tokens=9)
    assert counted.num_prompt_tokens == len(tokenizer.encode("a the")) + 9
    assert plan(Endpoint.COMPLETIONS).num_prompt_tokens is None
    with pytest.raises(ConfigError, match="a text is sent as ids: give the model's tokenizer"):
        plan(Endpoint.COMPLETIONS_IDS)


@pytest.mark.parametrize("endpoint", [Endpoint.COMPLETIONS, Endpoint.COMPLETIONS_IDS])
def test_messages_are_for_chat(endpoint: Endpoint) -> None:
    prompt = Prompt(messages=[{"role": "user", "content": "a"}])
    with pytest.raises(ConfigError, match="need endpoint chat"):
        plan_requests(changed(endpoint=endpoint), [prompt], TARGET)


@pytest.mark.parametrize(
    ("profile", "accepts", "message"),
    [
        (PROFILE, Accepts(), "no ignore_eos"),
        (PROFILE, Accepts(ignore_eos=True, prompt_ids=False), "takes no token ids"),
        (
            changed(sampling=Sampling(min_p=0.1)),
            Accepts(ignore_eos=True),
            "this server has no min_p",
        ),
    ],
)
def test_what_the_server_cannot_do_is_refused(
    profile: Profile, accepts: Accepts, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_requests(profile, IDS, Target(model="m", accepts=accepts))


def test_a_prompt_that_does_not_fit_is_refused_before_anything_is_sent() -> None:
    target = msgspec.structs.replace(TARGET, max_context=7)
    with pytest.raises(ConfigError, match=r"prompt 0 has 3 tokens and its answer 5, .* holds 7"):
        plan_requests(PROFILE, IDS, target)
