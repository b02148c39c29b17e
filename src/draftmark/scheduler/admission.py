"""From a request to its sequence, or to the reason why it could never run."""

from __future__ import annotations

from draftmark.cache.holding import Holding
from draftmark.cache.spec import PAGE_TOKENS
from draftmark.core.request import Request
from draftmark.core.step import RowSampling
from draftmark.scheduler.queue import Sequence


def refusal(request: Request, *, max_context: int, num_pages: int) -> str:
    """Why this request can never run, or "". Its last token included, all of it must fit the whole
    pool of `num_pages`; what would merely exceed the context is cut there."""
    num_prompt = len(request.prompt_ids)
    if num_prompt == 0:
        return "the prompt is empty"
    needed = num_prompt + (request.sampling.max_tokens != 0)
    pool = num_pages * PAGE_TOKENS
    if needed > max_context:
        return f"the prompt has {num_prompt} tokens, the context is {max_context}"
    if needed > pool:
        return f"the prompt has {num_prompt} tokens, the KV pool holds {pool}"
    end = end_of(request, max_context=max_context, num_pages=num_pages)
    if end > pool:
        return (
            f"the prompt has {num_prompt} tokens and the answer may have {end - num_prompt}, the "
            f"KV pool holds {pool}"
        )
    return ""


def end_of(request: Request, *, max_context: int, num_pages: int) -> int:
    """The total of tokens at which a request is done; without `max_tokens`, all that fits."""
    max_tokens = request.sampling.max_tokens
    if max_tokens is None:
        return min(max_context, num_pages * PAGE_TOKENS)
    return min(max_context, len(request.prompt_ids) + max_tokens)


def make_sequence(
    request: Request, *, arrival: int, end: int, holding: Holding, max_drafts: int
) -> Sequence:
    """A waiting sequence. `holding` is opened on a copy of the prompt; the sequence shares it.
    Steps draft at most `max_drafts` tokens a row."""
    num_prompt = len(holding.tokens)
    asked = request.sampling.draft_tokens
    return Sequence(
        id=request.id,
        request=request,
        order=(request.priority, arrival),
        sampling=_row_sampling(request),
        tokens=holding.tokens,
        num_prompt=num_prompt,
        end=end,
        min_end=min(end, num_prompt + request.sampling.min_tokens),
        holding=holding,
        max_drafts=max_drafts if asked is None else min(asked, max_drafts),
    )


def _row_sampling(request: Request) -> RowSampling:
    sampling = request.sampling
    return RowSampling(
        seed=request.seed,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        logprobs=-1 if sampling.logprobs is None else sampling.logprobs,
        bias=tuple(sampling.logit_bias.items()),
    )
