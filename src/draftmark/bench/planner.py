"""A profile and its prompts become requests, bodies and all, before the clock starts.

Every sampling field that the server takes is in every body: what a server would fill in by itself
must not decide a figure. What a profile asks for and the server does not take is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from draftmark.bench.adapters.base import Accepts
from draftmark.bench.profile import Endpoint, Mode, Profile, Sampling
from draftmark.bench.prompts.forms import PATHS, Form, form_of
from draftmark.bench.prompts.prompt import Prompt
from draftmark.bench.request import PlannedRequest
from draftmark.bench.tokenizer import BenchTokenizer
from draftmark.core.errors import ConfigError


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Whom the requests are for: the name of the model, the fields that the server takes, and the
    tokens of a prompt and its answer together, where it tells."""

    model: str
    accepts: Accepts
    max_context: int | None = None


def plan_requests(
    profile: Profile,
    prompts: Sequence[Prompt],
    target: Target,
    *,
    times: Sequence[float] | None = None,
    tokenizer: BenchTokenizer | None = None,
    template_tokens: int | None = None,
) -> list[PlannedRequest]:
    """One request a prompt. `times` are seconds after the start of the run, one a prompt, and None
    in a closed loop. Raises `ConfigError` for what this server cannot do or cannot hold."""
    _check_target(profile, target)
    if (times is None) != (profile.mode is Mode.CLOSED):
        raise ConfigError(f"mode {profile.mode} and times of requests do not go together")
    assert times is None or len(times) == len(prompts), "a time for each prompt"
    common = dict(_common_fields(profile, target))
    plans = []
    for index, prompt in enumerate(prompts):
        form = form_of(
            prompt, profile.endpoint, tokenizer=tokenizer, template_tokens=template_tokens
        )
        osl = prompt.osl or profile.osl
        _check_fits(form, osl, target, index=index)
        plans.append(
            PlannedRequest(
                index=index,
                at_s=None if times is None else times[index],
                path=PATHS[profile.endpoint],
                body=msgspec.json.encode(
                    {**common, **_own_fields(profile, target, index, osl), **form.fields}
                ),
                max_tokens=osl,
                ignore_eos=profile.ignore_eos,
                num_prompt_tokens=form.num_tokens,
                prompt_sha=prompt.sha256,
                window=prompt.window,
            )
        )
    return plans


def _check_target(profile: Profile, target: Target) -> None:
    accepts = target.accepts
    if profile.endpoint is Endpoint.COMPLETIONS_IDS and not accepts.prompt_ids:
        raise ConfigError(
            "this server takes no token ids: use endpoint completions", param="endpoint"
        )
    if profile.ignore_eos and not accepts.ignore_eos:
        raise ConfigError(
            "this server has no ignore_eos, so answers are not all of one length: set ignore_eos: "
            "false",
            param="ignore_eos",
        )
    neutral = Sampling()
    for name in Sampling.__struct_fields__:
        wanted = getattr(profile.sampling, name)
        if name not in accepts.sampling and wanted != getattr(neutral, name):
            raise ConfigError(f"this server has no {name}", param=f"sampling.{name}")


def _common_fields(profile: Profile, target: Target) -> Iterator[tuple[str, Any]]:
    accepts, sampling = target.accepts, profile.sampling
    yield "model", target.model
    yield "stream", True
    options = {"include_usage": True}
    if accepts.continuous_usage:
        options["continuous_usage_stats"] = True
    yield "stream_options", options
    for name in Sampling.__struct_fields__:
        if name in accepts.sampling and name not in ("seed", "top_k"):
            yield name, getattr(sampling, name)
    if "top_k" in accepts.sampling:
        yield "top_k", sampling.top_k or accepts.top_k_off
    if accepts.ignore_eos:
        yield "ignore_eos", profile.ignore_eos
    # The usage of an event says how many tokens it brings. So do ids, but vLLM repeats the prompt.
    if accepts.token_ids and not accepts.continuous_usage:
        yield "return_token_ids", True


def _own_fields(profile: Profile, target: Target, index: int, osl: int) -> dict[str, Any]:
    """`max_tokens`, and a seed of its own, so that equal prompts need not be answered alike."""
    seed = profile.sampling.seed
    own: dict[str, Any] = {"max_tokens": osl}
    if seed is not None and "seed" in target.accepts.sampling:
        own["seed"] = seed + index
    return own


def _check_fits(form: Form, osl: int, target: Target, *, index: int) -> None:
    if form.num_tokens is None or target.max_context is None:
        return
    if form.num_tokens + osl > target.max_context:
        raise ConfigError(
            f"prompt {index} has {form.num_tokens} tokens and its answer {osl}, the server holds "
            f"{target.max_context} together"
        )
