"""The Python API: `AsyncEngine`, and `Engine` (in `sync`) around it. The same processes as a
server's: an engine process and a worker, started here and gone when this object is closed.

Sampling fields that a call leaves out have the model's defaults (its generation_config.json, or
ours for a built-in model). A `SamplingParams` handed over whole is taken as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from draftmark.core.errors import ContextOverflow, RequestError, Unavailable
from draftmark.core.generation import GenerationDefaults, read_generation
from draftmark.core.messages import EngineStats
from draftmark.core.request import Request, SamplingParams
from draftmark.core.resolve import load_config
from draftmark.engine.client import EngineClient
from draftmark.engine.requests import ModelLimits, RequestMaker
from draftmark.engine.results import Completion, check_end, collect
from draftmark.engine.source import Progress
from draftmark.engine.textstream import TextAssembler, TextDelta, TextStream
from draftmark.text.prompt import ChatTemplate, load_chat_template
from draftmark.text.tokenizer import Tokenizer

Prompt = str | Sequence[int]
Messages = Sequence[Mapping[str, Any]]

# Longer texts are tokenised in a thread, so that running answers do not wait.
_LONG_CHARS = 20_000


class AsyncEngine:
    """`async with AsyncEngine("smollm2", max_running=8) as engine: ...`

    Keyword arguments are the flags of `draftmark serve` (`dtype="float32"`); `config` is a file for
    `--config`. Belongs to the event loop that started it. Requests beyond what the engine queues
    wait here, so no call is refused for load.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        config: str | Path | None = None,
        progress: Progress | None = None,
        worker: Sequence[str] | None = None,
        **flags: object,
    ) -> None:
        given = flags if model is None else {"model": model, **flags}
        self.declared = load_config(given, Path(config) if config is not None else None)
        options = {"progress": progress, "worker": worker}
        self._options: dict[str, Any] = {k: v for k, v in options.items() if v is not None}
        self._serving: _Serving | None = None

    async def start(self) -> AsyncEngine:
        """Return when ready. Raises `ConfigError`, `ModelError` or `EngineFailure`."""
        assert self._serving is None, "the engine was started already"
        client = await EngineClient.start(self.declared, **self._options)
        try:
            self._serving = _Serving(client)
        except BaseException:  # cancellation too: leave nothing running
            await client.close()
            raise
        return self

    async def close(self) -> None:
        """End everything that was started; requests in flight raise `Unavailable`."""
        if self._serving is not None:
            await self._serving.client.close()

    async def __aenter__(self) -> AsyncEngine:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling: SamplingParams | None = None,
        **fields: object,
    ) -> list[Completion]:
        """One `Completion` a prompt, in order. A prompt is text or token ids; all are checked
        before any runs, and an error of one ends all.
        """
        serving = self._running
        chosen = serving.sampling(sampling, fields)
        requests = [
            serving.request(await serving.encode(prompt), chosen) for prompt in _as_list(prompts)
        ]
        tasks = [asyncio.create_task(serving.complete(request)) for request in requests]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException:  # cancellation too: leave no request running
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def chat(
        self, messages: Messages, sampling: SamplingParams | None = None, **fields: object
    ) -> Completion:
        """The answer to a conversation in OpenAI's form, by the model's chat template."""
        serving = self._running
        chosen = serving.sampling(sampling, fields)
        return await serving.complete(await serving.chat_request(messages, chosen))

    async def stream(
        self, prompt: Prompt, sampling: SamplingParams | None = None, **fields: object
    ) -> AsyncGenerator[TextDelta, None]:
        """The answer as it comes; the last delta has `finish`. Leaving early aborts the request."""
        serving = self._running
        request = serving.request(await serving.encode(prompt), serving.sampling(sampling, fields))
        async with aclosing(serving.stream(request)) as deltas:
            async for delta in deltas:
                yield delta

    async def stream_chat(
        self, messages: Messages, sampling: SamplingParams | None = None, **fields: object
    ) -> AsyncGenerator[TextDelta, None]:
        """`chat` as it comes."""
        serving = self._running
        request = await serving.chat_request(messages, serving.sampling(sampling, fields))
        async with aclosing(serving.stream(request)) as deltas:
            async for delta in deltas:
                yield delta

    async def reset_cache(self) -> int:
        """Drop cached prefixes that nothing uses; the number of pages."""
        return await self._running.client.reset_cache()

    @property
    def tokenizer(self) -> Tokenizer:
        return self._running.tokenizer

    @property
    def defaults(self) -> GenerationDefaults:
        """The model's sampling defaults, each with its source."""
        return self._running.defaults

    @property
    def ready(self) -> dict[str, object]:
        """The ready record: sizes, times, and every resolved option with its source."""
        return self._running.client.ready

    @property
    def stats(self) -> EngineStats:
        return self._running.client.stats

    @property
    def client(self) -> EngineClient:
        """The seam below: requests of token ids in, outputs of token ids out."""
        return self._running.client

    @property
    def _running(self) -> _Serving:
        if self._serving is None:
            raise Unavailable("the engine is not started: use `async with`, or await start()")
        return self._serving


class _Serving:
    """What is there once the engine is ready."""

    def __init__(self, client: EngineClient) -> None:
        directory = client.source.directory
        model = client.declared.config.model
        self.client = client
        self.tokenizer = Tokenizer.load(directory)
        self.template: ChatTemplate | None = load_chat_template(
            directory, self.tokenizer, override=model.chat_template
        )
        self.defaults = read_generation(directory, own=client.source.own)
        self._maker = RequestMaker(ModelLimits.from_ready(client.ready), seed=model.seed)
        self._gate = asyncio.Semaphore(client.most_in_flight)

    def sampling(
        self, sampling: SamplingParams | None, fields: Mapping[str, object]
    ) -> SamplingParams:
        """`sampling` as it is, or `fields` over the model's defaults. Raises `RequestError`."""
        if sampling is not None:
            if fields:
                raise RequestError("give a SamplingParams or single fields, not both")
            return sampling
        given = {**self.defaults.sampling, **fields}
        if isinstance(given.get("stop"), str):
            given["stop"] = (given["stop"],)
        for name in given:
            if name not in SamplingParams.__struct_fields__:
                raise RequestError(f"unknown sampling field {name}", param=name)
        try:
            return msgspec.convert(given, SamplingParams)
        except msgspec.ValidationError as error:
            raise RequestError(str(error)) from error

    async def encode(self, prompt: Prompt, *, add_special_tokens: bool = True) -> Sequence[int]:
        """Token ids. A text that cannot fit is refused before it is tokenised."""
        if not isinstance(prompt, str):
            return prompt
        least = self.tokenizer.fewest_tokens(prompt)
        if least >= self._maker.limits.max_context:
            raise ContextOverflow(
                f"the prompt has at least {least} tokens, the context is "
                f"{self._maker.limits.max_context}",
                param="prompt",
            )
        if len(prompt) < _LONG_CHARS:
            return self.tokenizer.encode(prompt, add_special_tokens=add_special_tokens)
        return await asyncio.to_thread(
            self.tokenizer.encode_long, prompt, add_special_tokens=add_special_tokens
        )

    async def chat_request(self, messages: Messages, sampling: SamplingParams) -> Request:
        if self.template is None:
            raise RequestError("this model has no chat template; give one as chat_template=FILE")
        text = self.template.render(messages)
        # A template writes the special tokens itself.
        ids = await self.encode(text, add_special_tokens=False)
        history = self.template.history_tokens(ids, text, self.tokenizer)
        return self.request(ids, sampling, history_tokens=history)

    def request(
        self,
        prompt_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        history_tokens: int | None = None,
    ) -> Request:
        if sampling.max_tokens == 0 and sampling.prompt_logprobs is None:
            raise RequestError(
                "max_tokens 0 gives nothing without prompt_logprobs", param="max_tokens"
            )
        [request_id] = self.client.new_ids(1)
        return self._maker.make(request_id, prompt_ids, sampling, history_tokens=history_tokens)

    async def complete(self, request: Request) -> Completion:
        async with aclosing(self.stream(request)) as deltas:
            return await collect(deltas, num_prompt=len(request.prompt_ids))

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta, None]:
        """Deltas of one request, aborted when the reader leaves. Raises what ended it wrongly."""
        async with self._gate:
            [outputs] = self.client.submit([request])
            assembler = TextAssembler(
                self.tokenizer,
                stop=request.sampling.stop,
                min_tokens=request.sampling.min_tokens,
            )
            deltas = TextStream(outputs, assembler=assembler, engine=self.client)
            try:
                async for delta in deltas:
                    check_end(delta)
                    yield delta
            finally:
                deltas.abandon()


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt (text or ids) or a list of them, as a list."""
    if isinstance(prompts, str):
        return [prompts]
    ids = [prompt for prompt in prompts if isinstance(prompt, int)]
    if not ids:
        return [prompt for prompt in prompts if not isinstance(prompt, int)]
    if len(ids) != len(prompts):
        raise RequestError("a prompt is text or a list of token ids, not both", param="prompt")
    return [ids]
