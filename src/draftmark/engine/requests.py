"""From token ids and sampling parameters to a `Request`: checks, the rest of the context, the seed.

Shared by the server and the Python API, so that both refuse the same things in the same words.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from draftmark.core.errors import ContextOverflow, RequestError
from draftmark.core.request import MAX_STOP_IDS, Request, SamplingParams, check_token_id
from draftmark.text.stop import check_stop


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """What a request must fit, from the ready record. `max_drafts` is what the server makes at most
    for a row of a step."""

    vocab_size: int
    max_context: int
    eos_ids: tuple[int, ...]
    max_drafts: int = 0

    @classmethod
    def from_ready(cls, ready: dict[str, object]) -> ModelLimits:
        return cls(
            vocab_size=msgspec.convert(ready["vocab_size"], int),
            max_context=msgspec.convert(ready["max_context"], int),
            eos_ids=msgspec.convert(ready["eos_ids"], tuple[int, ...]),
            max_drafts=msgspec.convert(ready["draft_tokens"], int),
        )


class RequestMaker:
    """Makes requests for one engine. `seed` is the seed that seeds are drawn from (`--seed`)."""

    def __init__(self, limits: ModelLimits, *, seed: int) -> None:
        self.limits = limits
        self._seeds = random.Random(seed)

    def draw_seed(self) -> int:
        return self._seeds.getrandbits(63)

    def make(
        self,
        request_id: int,
        prompt_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        priority: int = 0,
        label: str = "",
        history_tokens: int | None = None,
    ) -> Request:
        """Raises `RequestError` naming the field, or `ContextOverflow`."""
        sampling.validate(vocab_size=self.limits.vocab_size)
        self._check_drafts(sampling.draft_tokens or 0)
        check_stop(sampling.stop)
        self.check_prompt(prompt_ids)
        sampling = self._with_max_tokens(sampling, len(prompt_ids))
        seed = self.draw_seed() if sampling.seed is None else sampling.seed
        return Request(
            id=request_id,
            prompt_ids=list(prompt_ids),
            sampling=sampling,
            seed=seed,
            stop_ids=self._stop_ids(sampling),
            priority=priority,
            label=label,
            history_tokens=history_tokens,
        )

    def check_prompt(self, prompt_ids: Sequence[int], *, param: str = "prompt") -> None:
        """Raise unless a prompt is not empty, in the vocabulary and leaves room for a token.

        `param` is the field that the prompt came from.
        """
        if not prompt_ids:
            raise RequestError("the prompt is empty", param=param)
        for token in (min(prompt_ids), max(prompt_ids)):
            check_token_id(token, vocab_size=self.limits.vocab_size, param=param)
        if len(prompt_ids) >= self.limits.max_context:
            raise ContextOverflow(
                f"the prompt has {len(prompt_ids)} tokens, the context is "
                f"{self.limits.max_context}: nothing could be generated",
                param=param,
            )

    def _check_drafts(self, wanted: int) -> None:
        most = self.limits.max_drafts
        if wanted and not most:
            raise RequestError(
                f"draft_tokens is {wanted}, but this server makes no drafts (--draft none, or "
                "--draft-tokens 0); leave it out or give 0",
                param="draft_tokens",
            )
        if wanted > most:
            raise RequestError(
                f"draft_tokens is {wanted}, this server makes at most {most} (--draft-tokens)",
                param="draft_tokens",
            )

    def _with_max_tokens(self, sampling: SamplingParams, num_prompt: int) -> SamplingParams:
        context = self.limits.max_context
        if sampling.max_tokens is None:
            rest = context - num_prompt
            if sampling.min_tokens > rest:
                raise ContextOverflow(
                    f"the prompt's {num_prompt} tokens leave {rest} of the context of {context}, "
                    f"min_tokens is {sampling.min_tokens}",
                    param="min_tokens",
                )
            return msgspec.structs.replace(sampling, max_tokens=rest)
        if num_prompt + sampling.max_tokens > context:
            raise ContextOverflow(
                f"the prompt's {num_prompt} tokens and max_tokens {sampling.max_tokens} are "
                f"{num_prompt + sampling.max_tokens} together, the context is {context}",
                param="max_tokens",
            )
        return sampling

    def _stop_ids(self, sampling: SamplingParams) -> tuple[int, ...]:
        eos = () if sampling.ignore_eos else self.limits.eos_ids
        ids = tuple(dict.fromkeys((*eos, *sampling.stop_token_ids)))
        if len(ids) > MAX_STOP_IDS:
            raise RequestError(
                f"stop_token_ids: {len(ids)} ids with the model's own, the limit is {MAX_STOP_IDS}",
                param="stop_token_ids",
            )
        return ids
