"""The HTTP application over a `FakeEngine`: in process, and over a real socket."""

from __future__ import annotations

import asyncio
import atexit
import functools
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from starlette.types import ASGIApp

from draftmark.core.config import Config, ModelConfig, ServerConfig
from draftmark.core.declared import Declared
from draftmark.core.resolve import load_config
from draftmark.server.access import ApiKeys
from draftmark.server.app import make_app
from draftmark.server.lifecycle import HttpServer, listen, url_of
from draftmark.server.model import load_model
from draftmark.server.service import Service
from tests.fakes import tokenizer
from tests.fakes.engine import FakeEngine

MODEL = "fake"
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


def config(**server: Any) -> Config:
    return Config(
        model=ModelConfig(model="some/model", served_model_name=(MODEL, "alias")),
        server=ServerConfig(**server),
    )


@dataclass
class Api:
    """One server. `client` speaks to it without a socket."""

    engine: FakeEngine
    service: Service
    app: ASGIApp
    client: httpx.AsyncClient

    async def chat(self, content: Any = "hi", **fields: Any) -> httpx.Response:
        return await self.client.post(CHAT, json=chat_body(content, **fields))

    async def complete(self, prompt: Any = "hi", **fields: Any) -> httpx.Response:
        return await self.client.post(TEXT, json={"prompt": prompt, **fields})


def chat_body(content: Any = "hi", **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], **fields}


@functools.cache
def _model_dir() -> Path:
    """Written once a session; removed at its end."""
    directory = tempfile.mkdtemp(prefix="draftmark-test-")
    atexit.register(shutil.rmtree, directory)
    return tokenizer.write_model_dir(Path(directory))


@asynccontextmanager
async def open_api(
    engine: FakeEngine | None = None,
    *,
    keys: tuple[str, ...] = (),
    ready: bool = True,
    **server: Any,
) -> AsyncIterator[Api]:
    """`server` are fields of `ServerConfig`; `ready` False leaves the service loading."""
    engine = engine or FakeEngine()
    declared = Declared(config=config(**server), sources=load_config({}).sources)
    with tempfile.TemporaryDirectory() as name:
        key_file = Path(name) / "keys"
        key_file.write_text("\n".join(keys))
        service = Service(
            declared, engine=engine, keys=ApiKeys.read(str(key_file) if keys else None)
        )
    model = load_model(
        _model_dir(),
        config=declared.config,
        ready=engine.ready,
        max_choices=engine.most_in_flight,
    )
    if ready:
        service.begin(model)
    app = make_app(service)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        try:
            yield Api(engine, service, app, client)
        finally:
            await engine.close()


@asynccontextmanager
async def listening(api: Api) -> AsyncIterator[str]:
    """The URL of the same application behind uvicorn on a free port."""
    with listen("127.0.0.1", 0) as listener:
        http = HttpServer(api.service)
        serving = asyncio.create_task(http.serve(sockets=[listener]))
        try:
            yield url_of(listener)
        finally:
            await http.stop()
            await serving


def events(text: str) -> list[Any]:
    """The objects of an event stream; `[DONE]` stays text."""
    parts = [part.removeprefix("data: ") for part in text.split("\n\n") if part]
    return [part if part == "[DONE]" else json.loads(part) for part in parts]


def joined(stream: list[Any]) -> dict[int, dict[str, Any]]:
    """What a client makes of a stream: text, ids, reasons and logprobs of each choice."""
    choices: dict[int, dict[str, Any]] = {}
    for event in stream:
        if event == "[DONE]":
            continue
        for choice in event["choices"]:
            whole = choices.setdefault(
                choice["index"],
                {"text": "", "ids": [], "reasons": [], "roles": [], "logprobs": []},
            )
            delta = choice.get("delta", {})
            whole["text"] += choice.get("text") or delta.get("content") or ""
            whole["ids"] += choice.get("token_ids") or []
            if choice["finish_reason"] is not None:
                whole["reasons"].append(choice["finish_reason"])
            if "role" in delta:
                whole["roles"].append(delta["role"])
            if choice["logprobs"]:
                whole["logprobs"].append(choice["logprobs"])
    return choices
