"""`ServedModel`: what the API process knows of the model, fixed once the engine is ready."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from draftmark.core.config import Config
from draftmark.core.errors import ModelNotFound
from draftmark.core.generation import GenerationDefaults, OwnDefaults, read_generation
from draftmark.core.synthetic import rates_of
from draftmark.engine.requests import ModelLimits, RequestMaker
from draftmark.text.prompt import ChatTemplate, load_chat_template
from draftmark.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """`names[0]` is the one shown. `max_choices` is how many sequences one call may ask for.
    `synthetic_acceptance` are the rates at which coins accept drafts: then answers mean nothing."""

    names: tuple[str, ...]
    root: str
    tokenizer: Tokenizer
    template: ChatTemplate | None
    defaults: GenerationDefaults
    maker: RequestMaker
    max_choices: int
    synthetic_acceptance: tuple[float, ...] = ()

    @property
    def context(self) -> int:
        return self.maker.limits.max_context

    def check_name(self, name: str | None) -> str:
        """The name to answer with. Raises `ModelNotFound`."""
        if name is None:
            return self.names[0]
        if name not in self.names:
            raise ModelNotFound(
                f"there is no model {name!r}; served here: {', '.join(self.names)}", param="model"
            )
        return name


def served_names(config: Config) -> tuple[str, ...]:
    return config.model.served_model_name or (config.model.model,)


def load_model(
    directory: Path,
    *,
    config: Config,
    ready: Mapping[str, object],
    max_choices: int,
    own: OwnDefaults | None = None,
) -> ServedModel:
    """Read the text side of a model directory. Raises `ModelError` or `ConfigError`, one line."""
    tokenizer = Tokenizer.load(directory)
    defaults = read_generation(directory, own=own)
    limits = ModelLimits.from_ready(dict(ready))
    eos = {*limits.eos_ids, *defaults.eos_ids}
    if tokenizer.eos_id is not None:
        eos.add(tokenizer.eos_id)
    in_vocabulary = sorted(token for token in eos if 0 <= token < limits.vocab_size)
    limits = replace(limits, eos_ids=tuple(in_vocabulary))
    return ServedModel(
        names=served_names(config),
        root=config.model.model,
        tokenizer=tokenizer,
        template=load_chat_template(directory, tokenizer, override=config.model.chat_template),
        defaults=defaults,
        maker=RequestMaker(limits, seed=config.model.seed),
        max_choices=max_choices,
        synthetic_acceptance=rates_of(ready),
    )
