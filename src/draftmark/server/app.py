"""The routes. Each reads a body, prepares a call and hands it on; nothing is decided here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from draftmark.core.declared import resolved_from_record, to_yaml
from draftmark.core.errors import ContextOverflow, DraftmarkError, RequestError, Unavailable
from draftmark.core.request import check_token_id
from draftmark.core.synthetic import rates_text
from draftmark.engine.stacks import own_stacks
from draftmark.server.answer import Answer
from draftmark.server.body import parse, read_body
from draftmark.server.fields import IGNORED_HEADER, ignored_header
from draftmark.server.formats import Format
from draftmark.server.logs import RequestLog
from draftmark.server.middleware import RequestScope
from draftmark.server.model import ServedModel
from draftmark.server.page import load_page
from draftmark.server.params import prepare_chat, prepare_completion
from draftmark.server.prepared import Prepared
from draftmark.server.problems import error_response, framework_response, internal_error
from draftmark.server.prompts import LONG_TEXT, encode, render_chat
from draftmark.server.protocol import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)
from draftmark.server.respond import AnswerResponse
from draftmark.server.responses import (
    DetokenizeResponse,
    ModelCard,
    ModelList,
    TokenizeResponse,
)
from draftmark.server.service import Service
from draftmark.text.detokenize import decode

# The rates at which coins accept drafts, where they do.
SYNTHETIC_HEADER = "x-draftmark-synthetic-acceptance"

# /tokenize counts texts that do not fit, too, but not ones whose size alone is an attack.
_MOST_CONTEXTS = 4

_Asked = TypeVar("_Asked", bound=msgspec.Struct)
_Made = TypeVar("_Made")


def make_app(service: Service) -> ASGIApp:
    """The whole HTTP application around one service."""
    app = FastAPI(
        title="draftmark",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    routes = Routes(service)
    paths: set[str] = set()
    for method, path, endpoint in routes.table():
        methods = ["GET", "HEAD"] if method == "GET" else [method]
        app.add_api_route(path, endpoint, methods=methods, response_model=None)
        paths.add(path)

    @app.exception_handler(HTTPException)
    async def refuse(request: Request, error: HTTPException) -> Response:
        return framework_response(request, error)

    @app.exception_handler(DraftmarkError)
    async def explain(request: Request, error: DraftmarkError) -> Response:
        log = _log_of(request)
        log.fields |= {"error": error.code, "reason": error.message}
        return error_response(error)

    @app.exception_handler(Exception)
    async def apologise(request: Request, error: Exception) -> Response:
        return error_response(internal_error())  # raised again behind this, for the log

    return RequestScope(app, service=service, paths=frozenset(paths))


class Routes:
    """One method a route."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._page = load_page()
        self._began = int(time.time())

    def table(self) -> list[tuple[str, str, Callable[..., object]]]:
        """(method, path, endpoint) of everything that is served."""
        return [
            ("POST", "/v1/chat/completions", self.chat),
            ("POST", "/v1/completions", self.completions),
            ("GET", "/v1/models", self.models),
            ("GET", "/v1/models/{name:path}", self.one_model),
            ("POST", "/tokenize", self.tokenize),
            ("POST", "/detokenize", self.detokenize),
            ("GET", "/health", self.health),
            ("GET", "/readyz", self.health),
            ("GET", "/livez", self.alive),
            ("GET", "/metrics", self.metrics),
            ("GET", "/v1/engine/config", self.config),
            ("GET", "/v1/engine/stacks", self.stacks),
            ("POST", "/v1/engine/cache/reset", self.reset_cache),
            ("GET", "/", self.page),
        ]

    async def chat(self, request: Request) -> Response:
        return await self._generate(request, ChatRequest, prepare_chat)

    async def completions(self, request: Request) -> Response:
        return await self._generate(request, CompletionRequest, prepare_completion)

    async def models(self) -> Response:
        model = self._service.model
        cards = [self._card(name) for name in model.names]
        return _json(ModelList(cards), headers=_synthetic(model.synthetic_acceptance))

    async def one_model(self, name: str) -> Response:
        return _json(self._card(self._service.model.check_name(name)))

    async def tokenize(self, request: Request) -> Response:
        return await self._answer_at_once(request, TokenizeRequest, _tokenize)

    async def detokenize(self, request: Request) -> Response:
        return await self._answer_at_once(request, DetokenizeRequest, _detokenize)

    async def health(self) -> Response:
        """200 when a request would be taken now, 503 with the reason when not."""
        self._service.check_ready()
        return _json({"status": "ready"})

    async def alive(self) -> Response:
        return _json({"status": "alive"})

    async def metrics(self) -> Response:
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(self._service.metrics.text(), media_type=kind)

    async def config(self, request: Request) -> Response:
        """Every resolved value with its source, or (format=yaml) the file for --config."""
        form = request.query_params.get("format", "json")
        if form not in ("json", "yaml"):
            raise RequestError(f"format must be json or yaml, got {form!r}", param="format")
        model = self._service.model
        ready = dict(self._service.engine.ready)
        record = msgspec.convert(ready.pop("resolved"), dict[str, dict[str, object] | None])
        if form == "yaml":
            return Response(to_yaml(resolved_from_record(record)), media_type="application/yaml")
        sections = record["config"] or {}
        return _json(
            {
                **sections,
                "file": record["file"],
                "sampling": model.defaults.record(),
                "ready": ready,
            }
        )

    async def reset_cache(self) -> Response:
        self._service.check_ready()
        return _json({"pages_dropped": await self._service.engine.reset_cache()})

    async def stacks(self) -> Response:
        """What every process is doing, as text; 503 with the reason and our own stacks when the
        engine does not say."""
        try:
            text, status = await self._service.engine.stacks(), 200
        except Unavailable as error:
            text, status = f"{error.message}\n\n", error.status
        text += f"Stacks of the API process\n{own_stacks()}"
        return Response(text, status, media_type="text/plain; charset=utf-8")

    async def page(self) -> Response:
        return Response(self._page.body, headers=self._page.headers)

    async def _generate(
        self,
        request: Request,
        kind: type[_Asked],
        prepare: Callable[[_Asked, ServedModel], Prepared],
    ) -> Response:
        service, log = self._service, _log_of(request)
        prepared, unknown = await self._read(request, kind, prepare)
        service.check_ready()
        answer = Answer(
            prepared,
            engine=service.engine,
            tokenizer=service.model.tokenizer,
            metrics=service.metrics,
            arrived=log.arrived,
            label=log.request_id,
        )
        rates = service.model.synthetic_acceptance
        prefix = "chatcmpl" if prepared.shown.is_chat else "cmpl"
        return AnswerResponse(
            answer,
            Format(
                id=f"{prefix}-{log.request_id}",
                created=int(time.time()),
                shown=prepared.shown,
                synthetic_acceptance=rates,
            ),
            log=log,
            log_prompts=service.declared.config.server.log_prompts,
            headers=_ignored(unknown) | _synthetic(rates),
        )

    async def _answer_at_once(
        self,
        request: Request,
        kind: type[_Asked],
        answer: Callable[[_Asked, ServedModel], msgspec.Struct],
    ) -> Response:
        made, unknown = await self._read(request, kind, answer)
        return _json(made, headers=_ignored(unknown))

    async def _read(
        self, request: Request, kind: type[_Asked], make: Callable[[_Asked, ServedModel], _Made]
    ) -> tuple[_Made, list[str]]:
        """Read the body, then parse it and `make` something of it, away from the loop if large."""
        model = self._service.model
        body = await read_body(request)

        def work() -> tuple[_Made, list[str]]:
            asked, unknown = parse(body, kind)
            return make(asked, model), unknown

        return await self._service.off_loop(work, size=len(body))

    def _card(self, name: str) -> ModelCard:
        model = self._service.model
        return ModelCard(
            id=name,
            created=self._began,
            root=model.root,
            max_model_len=model.context,
            context_length=model.context,
            synthetic_acceptance=list(model.synthetic_acceptance) or msgspec.UNSET,
        )


def _tokenize(request: TokenizeRequest, model: ServedModel) -> TokenizeResponse:
    model.check_name(request.model)
    if (request.prompt is None) == (request.messages is None):
        raise RequestError("give one of prompt and messages", param="prompt")
    if request.messages is not None:
        text = render_chat(request, request.messages, model)
        add_special = bool(request.add_special_tokens)
    else:
        text = request.prompt or ""
        add_special = request.add_special_tokens is not False
    fewest = model.tokenizer.fewest_tokens(text) if len(text) > LONG_TEXT else 0
    if fewest > _MOST_CONTEXTS * model.context:
        raise ContextOverflow(
            f"the text has at least {fewest} tokens, the context is {model.context}: it is not "
            "counted beyond that many times",
            param="prompt" if request.messages is None else "messages",
        )
    tokens = encode(text, model.tokenizer, add_special_tokens=add_special)
    names = None
    if request.return_token_strs:
        names = [model.tokenizer.token_bytes(token).decode("utf-8", "replace") for token in tokens]
    return TokenizeResponse(
        count=len(tokens), max_model_len=model.context, tokens=tokens, token_strs=names
    )


def _detokenize(request: DetokenizeRequest, model: ServedModel) -> DetokenizeResponse:
    model.check_name(request.model)
    for token in {min(request.tokens, default=0), max(request.tokens, default=0)}:
        check_token_id(token, vocab_size=model.maker.limits.vocab_size, param="tokens")
    skip = bool(request.skip_special_tokens)
    return DetokenizeResponse(decode(model.tokenizer, request.tokens, skip_special_tokens=skip))


def _log_of(request: Request) -> RequestLog:
    log = request.state.log
    assert isinstance(log, RequestLog)
    return log


def _ignored(unknown: list[str]) -> dict[str, str]:
    return {IGNORED_HEADER: ignored_header(unknown)} if unknown else {}


def _synthetic(rates: Sequence[float]) -> dict[str, str]:
    return {SYNTHETIC_HEADER: rates_text(rates)} if rates else {}


def _json(value: object, *, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), headers=headers, media_type="application/json")
