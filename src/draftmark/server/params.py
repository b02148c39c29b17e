"""From a parsed request to a `Prepared` call: every rule about values, lengths and limits.

Runs without the event loop: for a large body the server calls it in a thread. Whatever is wrong
ends here, as an error that names the field, before the engine hears of the request.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from draftmark.core.errors import RequestError
from draftmark.core.request import MAX_LOGPROBS, SamplingParams
from draftmark.server.model import ServedModel
from draftmark.server.prepared import Choice, Prepared, Prompt, Shown
from draftmark.server.prompts import chat_prompt, completion_prompts
from draftmark.server.protocol import ChatRequest, CompletionRequest, GenerationRequest

MAX_N = 128
_INT32_MAX = 2**31 - 1
_TO_INT64 = 2**63
_AS_GIVEN = (
    *("presence_penalty", "frequency_penalty", "seed", "ignore_eos", "min_tokens"),
    "draft_tokens",
)
_NO_ID = 0  # the engine's client gives ids out, at submission


def prepare_chat(request: ChatRequest, model: ServedModel) -> Prepared:
    """Raises `RequestError` naming the field at fault."""
    name = model.check_name(request.model)
    if request.top_logprobs and not request.logprobs:
        raise RequestError("top_logprobs needs logprobs to be true", param="top_logprobs")
    logprobs = (request.top_logprobs or 0) if request.logprobs else None
    _check_range("top_logprobs", logprobs, 0, MAX_LOGPROBS)
    sampling = _sampling(
        request,
        model,
        max_tokens=_chat_max_tokens(request),
        logprobs=logprobs,
        prompt_logprobs=request.prompt_logprobs,
    )
    shown = _shown(request, name, is_chat=True, logprobs=logprobs)
    prompts = [chat_prompt(request, model)]
    return _prepare(request, model, prompts, sampling=sampling, shown=shown)


def prepare_completion(request: CompletionRequest, model: ServedModel) -> Prepared:
    """Raises `RequestError` naming the field at fault."""
    name = model.check_name(request.model)
    echo = bool(request.echo)
    _check_range("logprobs", request.logprobs, 0, MAX_LOGPROBS)
    wanted_for_prompt = [request.prompt_logprobs, request.logprobs if echo else None]
    sampling = _sampling(
        request,
        model,
        max_tokens=request.max_tokens,
        logprobs=request.logprobs,
        prompt_logprobs=max((n for n in wanted_for_prompt if n is not None), default=None),
    )
    if request.max_tokens == 0 and not echo:
        raise RequestError("max_tokens 0 needs echo to be true", param="max_tokens")
    shown = _shown(request, name, is_chat=False, logprobs=request.logprobs, echo=echo)
    prompts = completion_prompts(request, model)
    return _prepare(request, model, prompts, sampling=sampling, shown=shown)


def _prepare(
    request: GenerationRequest,
    model: ServedModel,
    prompts: list[Prompt],
    *,
    sampling: SamplingParams,
    shown: Shown,
) -> Prepared:
    count = 1 if request.n is None else request.n
    _check_range("n", count, 1, MAX_N)
    if count * len(prompts) > model.max_choices:
        raise RequestError(
            f"{len(prompts)} prompts with n {count} are {count * len(prompts)} answers, this "
            f"server takes at most {model.max_choices} at once",
            param="n" if len(prompts) == 1 else "prompt",
        )
    priority = request.priority or 0
    _check_range("priority", priority, -_INT32_MAX, _INT32_MAX)
    choices: list[Choice] = []
    for prompt in prompts:
        first = model.maker.make(
            _NO_ID,
            prompt.ids,
            sampling,
            priority=priority,
            history_tokens=prompt.history_tokens,
        )
        choices += [
            Choice(prompt=prompt, request=replace(first, seed=add_seed(first.seed, index)))
            for index in range(count)
        ]
    return Prepared(choices=choices, per_prompt=count, shown=shown)


def add_seed(seed: int, index: int) -> int:
    """seed + index, wrapped around as int64: the seed of choice number `index`."""
    return (seed + index + _TO_INT64) % (2 * _TO_INT64) - _TO_INT64


def _sampling(
    request: GenerationRequest,
    model: ServedModel,
    *,
    max_tokens: int | None,
    logprobs: int | None,
    prompt_logprobs: int | None,
) -> SamplingParams:
    """The request's values, and the model's defaults for those it leaves out."""
    given = {
        name: getattr(request, name) for name in _AS_GIVEN if getattr(request, name) is not None
    }
    for name, default in model.defaults.sampling.items():
        value = getattr(request, name)
        given[name] = default if value is None else value
    stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
    return SamplingParams(
        **given,
        max_tokens=max_tokens,
        logit_bias=_logit_bias(request.logit_bias or {}),
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        stop=tuple(dict.fromkeys(stop)),
        stop_token_ids=tuple(dict.fromkeys(request.stop_token_ids or ())),
    )


def _logit_bias(given: Mapping[str, float]) -> dict[int, float]:
    """Token ids come as the names of a JSON object; range and values are checked later."""
    bias: dict[int, float] = {}
    for name, value in given.items():
        digits = name.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
            raise RequestError(
                f"logit_bias: {name[:40]!r} is not a token id (a whole number)", param="logit_bias"
            )
        bias[int(name)] = value
    return bias


def _chat_max_tokens(request: ChatRequest) -> int | None:
    """OpenAI renamed the field; both at once must agree."""
    old, new = request.max_tokens, request.max_completion_tokens
    if None not in (old, new) and old != new:
        raise RequestError(
            f"max_tokens ({old}) and max_completion_tokens ({new}) differ; give one of them",
            param="max_completion_tokens",
        )
    chosen, field = (old, "max_tokens") if new is None else (new, "max_completion_tokens")
    if chosen == 0:
        raise RequestError(f"{field} must be at least 1", param=field)
    return chosen


def _shown(
    request: GenerationRequest,
    model: str,
    *,
    is_chat: bool,
    logprobs: int | None,
    echo: bool = False,
) -> Shown:
    if request.stream_options is not None and not request.stream:
        raise RequestError("stream_options needs stream to be true", param="stream_options")
    options = request.stream_options
    return Shown(
        is_chat=is_chat,
        model=model,
        stream=bool(request.stream),
        include_usage=bool(options and options.include_usage),
        continuous_usage=bool(options and options.continuous_usage_stats),
        token_ids=bool(request.return_token_ids),
        tokens_as_ids=bool(request.return_tokens_as_token_ids),
        skip_special_tokens=request.skip_special_tokens is not False,
        logprobs=logprobs,
        prompt_logprobs=request.prompt_logprobs,
        echo=echo,
    )


def _check_range(name: str, value: int | None, low: int, high: int) -> None:
    if value is not None and not low <= value <= high:
        raise RequestError(f"{name} must be between {low} and {high}, got {value}", param=name)
