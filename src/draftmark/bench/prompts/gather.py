"""The prompts of one run, from whichever source its profile names."""

from __future__ import annotations

from pathlib import Path

import msgspec

from draftmark.bench.ledger.choose import Order
from draftmark.bench.ledger.entries import Use
from draftmark.bench.ledger.ledger import Ledger, Reservation
from draftmark.bench.ledger.state import CorpusState
from draftmark.bench.profile import Profile, PromptSource
from draftmark.bench.prompts.files import data_file, file_prompts
from draftmark.bench.prompts.prompt import Prompt, own_tokens
from draftmark.bench.prompts.random_ids import random_prompts, salt_of
from draftmark.bench.prompts.windows import window_prompts
from draftmark.bench.tokenizer import BenchTokenizer
from draftmark.core.errors import ConfigError


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """What prompts are made from, where the caller has it. `corpus` may be left out when the ledger
    has only one."""

    tokenizer: BenchTokenizer | None = None
    data: Path | None = None
    ledger: Ledger | None = None
    corpus: str | None = None


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """`reservation` is what the run has to commit when it is over, or to void when nothing of it
    was sent."""

    prompts: list[Prompt]
    reservation: Reservation | None = None


def check_sources(profile: Profile, sources: Sources, *, runs: int, use: Use = Use.FRESH) -> None:
    """Before the first of `runs` runs, and before what warms the server up for them. Raises
    `ConfigError` for a source that is not there, or has not enough for all of them."""
    match profile.source:
        case PromptSource.FILE:
            _from_file(profile, sources)
        case PromptSource.RANDOM_IDS:
            _tokenizer(sources, profile)
        case PromptSource.LEDGER:
            tokenizer = _tokenizer(sources, profile)
            _, corpus = _corpus(sources, tokenizer)
            need = profile.n_requests * own_tokens(profile.isl, tokenizer.lead)
            left = corpus.runs_left(need)
            if use is Use.FRESH and left < runs:
                raise ConfigError(
                    f"corpus {corpus.added.corpus} is too small: {runs} runs of {need} tokens, and "
                    f"{left} of them fit into the {corpus.num_left} that were never sent: add text "
                    "with `ledger add`, or take shorter, fewer or paired ones",
                    param="corpus",
                )


def gather_prompts(
    profile: Profile,
    sources: Sources,
    *,
    run_id: str,
    use: Use = Use.FRESH,
    start_id: str | None = None,
    isolated: bool = False,
) -> Gathered:
    """`profile.n_requests` prompts. `use`, `start_id` and `isolated` are for the ledger, which
    hands their window out for good. Raises `ConfigError` when there are not enough."""
    match profile.source:
        case PromptSource.FILE:
            return Gathered(prompts=_from_file(profile, sources))
        case PromptSource.RANDOM_IDS:
            tokenizer = _tokenizer(sources, profile)
            prompts = random_prompts(
                tokenizer.plain_ids,
                count=profile.n_requests,
                length=profile.isl,
                salt=salt_of(run_id, profile.seed),
                lead=tokenizer.lead,
            )
            return Gathered(prompts=prompts)
        case PromptSource.LEDGER:
            return _from_ledger(
                profile, sources, run_id=run_id, use=use, start_id=start_id, isolated=isolated
            )


def _from_file(profile: Profile, sources: Sources) -> list[Prompt]:
    assert profile.file is not None, "a profile is checked when it is read"
    path = data_file(sources.data, profile.file)
    return file_prompts(path, count=profile.n_requests, seed=profile.seed)


def _from_ledger(
    profile: Profile,
    sources: Sources,
    *,
    run_id: str,
    use: Use,
    start_id: str | None,
    isolated: bool,
) -> Gathered:
    tokenizer = _tokenizer(sources, profile)
    ledger, corpus = _corpus(sources, tokenizer)
    added = corpus.added
    order = Order(
        num_prompts=profile.n_requests,
        prompt_tokens=own_tokens(profile.isl, tokenizer.lead),
        use=use,
        start_id=start_id,
        isolated=isolated,
    )
    reservation = ledger.reserve(run_id, added.corpus, order)
    prompts = window_prompts(
        ledger.tokens(added),
        start=reservation.start,
        count=profile.n_requests,
        length=profile.isl,
        lead=tokenizer.lead,
    )
    return Gathered(prompts=prompts, reservation=reservation)


def _corpus(sources: Sources, tokenizer: BenchTokenizer) -> tuple[Ledger, CorpusState]:
    """The corpus that is meant, which the server's own tokenizer must have cut."""
    if sources.ledger is None:
        raise ConfigError("the profile's prompts come from a ledger: --ledger FILE", param="ledger")
    state = sources.ledger.state()
    name = sources.corpus
    if name is None:
        if len(state.corpora) != 1:
            known = ", ".join(state.corpora) or "none"
            raise ConfigError(f"which corpus? The ledger has {known}: --corpus", param="corpus")
        name = next(iter(state.corpora))
    corpus = state.corpus(name)
    added = corpus.added
    if added.tokenizer_sha256 != tokenizer.sha256:
        raise ConfigError(
            f"corpus {name} was cut by another tokenizer ({added.tokenizer_sha256[:12]}) than the "
            f"model's ({tokenizer.sha256[:12]}): give the same --tokenizer as then, or add the "
            "text again under another name",
            param="corpus",
        )
    return sources.ledger, corpus


def _tokenizer(sources: Sources, profile: Profile) -> BenchTokenizer:
    if sources.tokenizer is None:
        raise ConfigError(
            f"source {profile.source} needs the model's tokenizer: --tokenizer FOLDER",
            param="tokenizer",
        )
    return sources.tokenizer
