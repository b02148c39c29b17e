"""The smaller routes, states of the server, errors of the framework, figures and logs (D08)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from draftmark.core.config import Config
from draftmark.core.config_file import read_config_file
from draftmark.core.messages import EngineState
from draftmark.core.request import FinishReason
from draftmark.server.logs import KeyValueFormatter, key_values
from draftmark.text.prompt import ChatTemplate
from tests.fakes.api import CHAT, TEXT, Api, chat_body, events, open_api
from tests.fakes.engine import CONTEXT, VOCAB, FakeEngine


async def test_models(api: Api) -> None:
    body = (await api.client.get("/v1/models")).json()
    assert body["object"] == "list"
    assert [card["id"] for card in body["data"]] == ["fake", "alias"]
    assert body["data"][0]["max_model_len"] == body["data"][0]["context_length"] == CONTEXT
    one = (await api.client.get("/v1/models/alias")).json()
    assert (one["id"], one["root"]) == ("alias", "some/model")
    missing = await api.client.get("/v1/models/no/such")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
    for name in ("fake", "alias"):
        assert (await api.chat(model=name)).json()["model"] == name


async def test_tokenize_and_detokenize(api: Api) -> None:
    text = "the 日本 <|im_end|>"
    made = await api.client.post("/tokenize", json={"prompt": text, "return_token_strs": True})
    body = made.json()
    assert body["count"] == len(body["tokens"]) == len(body["token_strs"])
    assert body["max_model_len"] == CONTEXT
    back = await api.client.post("/detokenize", json={"tokens": body["tokens"]})
    assert back.json() == {"prompt": text}
    chat = (await api.client.post("/tokenize", json=chat_body("x"))).json()
    answer = await api.chat("x")
    assert answer.json()["usage"]["prompt_tokens"] == chat["count"]
    assert (await api.client.post("/detokenize", json={"tokens": []})).json() == {"prompt": ""}


async def test_a_text_beyond_the_context_is_counted_but_not_without_end(api: Api) -> None:
    beyond = await api.client.post("/tokenize", json={"prompt": "x" * 3 * CONTEXT})
    assert beyond.json()["count"] == 3 * CONTEXT
    absurd = await api.client.post("/tokenize", json={"prompt": "x" * 100 * CONTEXT})
    assert (absurd.status_code, absurd.json()["error"]["param"]) == (400, "prompt")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": []}, "prompt"),
        ("/tokenize", {"prompt": 5}, "prompt"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [VOCAB]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": ["a"]}, "tokens[0]"),
    ],
)
async def test_what_they_refuse(api: Api, path: str, body: dict[str, Any], param: str) -> None:
    response = await api.client.post(path, json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


async def test_the_configuration_as_json_and_as_the_declared_file(api: Api, tmp_path: Any) -> None:
    body = (await api.client.get("/v1/engine/config")).json()
    assert body["model"]["dtype"]["source"] == "measured"
    assert body["sampling"]["temperature"] == {"value": 1.0, "source": "default"}
    assert body["ready"]["max_context"] == CONTEXT
    text = (await api.client.get("/v1/engine/config?format=yaml")).text
    (tmp_path / "run.yaml").write_text(text)
    values, _ = read_config_file(tmp_path / "run.yaml")
    assert values["model.dtype"] == "float32"
    wrong = await api.client.get("/v1/engine/config?format=xml")
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "format")


async def test_cache_reset(api: Api) -> None:
    assert (await api.client.post("/v1/engine/cache/reset")).json() == {"pages_dropped": 3}


async def test_stacks_of_every_process(api: Api) -> None:
    shown = await api.client.get("/v1/engine/stacks")
    assert (shown.status_code, shown.headers["content-type"].split(";")[0]) == (200, "text/plain")
    assert shown.text.startswith("fake stacks\nStacks of the API process\n")
    assert "server/app.py" in shown.text
    api.engine.stacks_text = None
    silent = await api.client.get("/v1/engine/stacks")
    assert silent.status_code == 503
    assert silent.text.startswith("the engine did not answer within 3 s\n\nStacks of the API")
    assert "server/app.py" in silent.text


async def test_the_page(api: Api) -> None:
    page = await api.client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "content-security-policy" in page.headers


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nope", 404, "not_found"),
        ("GET", "/v1/models/", 404, "model_not_found"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("OPTIONS", CHAT, 405, "method_not_allowed"),
    ],
)
async def test_errors_of_the_framework_have_the_same_shape(
    api: Api, method: str, path: str, status: int, code: str
) -> None:
    response = await api.client.request(method, path)
    assert response.status_code == status
    assert response.json()["error"]["code"] == code


async def test_probes_may_use_head(api: Api) -> None:
    for path in ("/health", "/livez", "/"):
        assert (await api.client.head(path)).status_code == 200


async def test_request_ids_are_echoed_or_made(api: Api) -> None:
    answer = await api.client.post(CHAT, json=chat_body(), headers={"x-request-id": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"
    assert answer.json()["id"] == "chatcmpl-mine-1"
    assert api.engine.submitted[0].label == "mine-1-0"
    for bad in ("", "a b", "x" * 200):
        other = await api.client.get("/nope", headers={"x-request-id": bad})
        assert len(other.headers["x-request-id"]) == 32


class TestStates:
    """/health and /readyz are 200 exactly when a request would be taken."""

    async def _check(self, api: Api, status: int, words: str = "") -> None:
        for path in ("/health", "/readyz"):
            response = await api.client.get(path)
            assert response.status_code == status
            if status == 503:
                assert words in response.json()["error"]["message"]
                assert int(response.headers["retry-after"]) > 0
        assert (await api.client.get("/livez")).status_code == 200
        assert (await api.client.get("/metrics")).status_code == 200
        assert (await api.client.get("/")).status_code == 200
        for path, body in ((CHAT, chat_body()), (TEXT, {"prompt": "a"})):
            assert (await api.client.post(path, json=body)).status_code == status

    async def test_ready(self, api: Api) -> None:
        await self._check(api, 200)

    async def test_loading(self) -> None:
        async with open_api(ready=False) as api:
            await self._check(api, 503, "reading the tokenizer")
            api.engine.state = EngineState("loading", "loading 5 GB of weights")
            await self._check(api, 503, "loading 5 GB of weights")
            assert (await api.client.get("/v1/models")).status_code == 503

    async def test_draining(self, api: Api) -> None:
        api.engine.state = EngineState("draining", "shutting down", api.engine.ready)
        await self._check(api, 503, "draining")

    @pytest.mark.parametrize("path", [CHAT, TEXT])
    async def test_failed_with_requests_in_flight(self, api: Api, path: str) -> None:
        """D08: streams end with an error, nothing hangs, new requests get 503."""
        body = chat_body() if path == CHAT else {"prompt": "a"}
        body |= {"max_tokens": 400, "ignore_eos": True}
        streaming = asyncio.create_task(api.client.post(path, json={**body, "stream": True}))
        while not api.engine.steps:
            await asyncio.sleep(0.001)
        api.engine.pause()
        whole = asyncio.create_task(api.client.post(path, json=body))
        while len(api.engine.submitted) < 2:
            await asyncio.sleep(0.001)
        api.engine.fail("the worker was killed by signal 9")
        *chunks, error, done = events((await streaming).text)
        assert done == "[DONE]"
        assert "signal 9" in error["error"]["message"]
        assert not any(c["finish_reason"] for chunk in chunks for c in chunk["choices"])
        assert (await whole).status_code == 500
        assert "signal 9" in (await whole).json()["error"]["message"]
        await self._check(api, 503, "signal 9")
        assert api.engine.abort_calls == []


class TestFaults:
    """C07: a fault ends an answer with a reason, in both modes, and is logged with its id."""

    @pytest.mark.parametrize("path", [CHAT, TEXT])
    async def test_in_a_stream(self, path: str, caplog: pytest.LogCaptureFixture) -> None:
        async with open_api(FakeEngine(fail_after=2)) as api:
            body = chat_body() if path == CHAT else {"prompt": "a"}
            response = await api.client.post(path, json={**body, "stream": True})
            *chunks, error, done = events(response.text)
            assert (len(chunks), done) == (2, "[DONE]")
            assert error["error"] == {
                "message": "injected fault",
                "type": "server_error",
                "param": None,
                "code": "engine_failure",
            }
            [record] = [r for r in caplog.records if r.levelno == logging.ERROR]
            assert record.__dict__["fields"]["request_id"] == response.headers["x-request-id"]

    async def test_before_the_first_token_it_is_a_status(self) -> None:
        async with open_api(FakeEngine(fail_after=0)) as api:
            for stream in (False, True):
                response = await api.chat(stream=stream)
                assert response.status_code == 500
                assert response.json()["error"]["message"] == "injected fault"

    async def test_one_choice_of_two_takes_the_other_with_it(self) -> None:
        async with open_api(FakeEngine(fail_after=2, capacity=1)) as api:
            response = await api.chat(n=2, stream=True)
            *_, error, done = events(response.text)
            assert (error["error"]["message"], done) == ("injected fault", "[DONE]")
            assert api.engine.abort_calls == [2]

    async def test_what_the_engine_cannot_ever_run_is_a_400(self) -> None:
        async with open_api(FakeEngine(refuse="needs 900 pages, the pool has 100")) as api:
            for stream in (False, True):
                response = await api.chat(stream=stream)
                assert response.status_code == 400
                assert "900 pages" in response.json()["error"]["message"]

    async def test_a_full_queue_is_a_429(self) -> None:
        async with open_api(FakeEngine(most_in_flight=1)) as api:
            api.engine.pause()
            first = asyncio.create_task(api.chat())
            while not api.engine.submitted:
                await asyncio.sleep(0.001)
            for stream in (False, True):
                response = await api.chat(stream=stream)
                assert (response.status_code, response.headers["retry-after"]) == (429, "2")
                assert response.json()["error"]["code"] == "server_overloaded"
            too_many = await api.chat(n=2)  # retrying would never help
            assert (too_many.status_code, too_many.json()["error"]["param"]) == (400, "n")
            api.engine.resume()
            assert (await first).status_code == 200

    async def test_a_bug_of_ours_in_a_stream(
        self, api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls = iter([None, None])

        def break_down(*args: object, **kwargs: object) -> Any:
            next(calls)  # StopIteration in the third call
            return original(*args, **kwargs)

        from draftmark.server.formats import Format

        original = Format.chunk
        monkeypatch.setattr(Format, "chunk", break_down)
        *chunks, error, done = events((await api.chat(stream=True)).text)
        assert (len(chunks), done) == (2, "[DONE]")
        assert "internal error" in error["error"]["message"]
        assert len(api.engine.abort_calls) == 1
        assert any(record.exc_info for record in caplog.records)

    async def test_a_bug_of_ours_in_a_route(
        self, api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def break_down(*args: object, **kwargs: object) -> str:
            raise ZeroDivisionError("planted")

        monkeypatch.setattr(ChatTemplate, "render", break_down)
        response = await api.chat()
        assert response.status_code == 500
        assert response.json()["error"]["code"] == "internal_error"
        assert "planted" not in response.text
        assert any(record.exc_info for record in caplog.records)


async def test_figures(api: Api) -> None:
    await api.chat(seed=1)
    await api.complete("a", max_tokens=2)
    api.engine.pause()
    waiting = asyncio.create_task(api.complete("b"))
    while len(api.engine.submitted) < 3:
        await asyncio.sleep(0.001)
    text = (await api.client.get("/metrics")).text
    found = {
        (sample.name, sample.labels.get("finished_reason", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "le" not in sample.labels
    }
    for prefix in ("vllm:", "draftmark_"):
        assert found[f"{prefix}time_to_first_token_seconds_count", ""] == 2
        assert found[f"{prefix}request_generation_tokens_count", ""] == 2
    assert found["vllm:time_per_output_token_seconds_count", ""] > 0
    assert found["vllm:num_requests_waiting", ""] == 1
    assert found["vllm:request_success_total", "stop"] == 1
    assert found["vllm:request_success_total", "length"] == 1
    assert ("vllm:request_success_total", "abort") not in found
    for name in (
        "num_requests_running",
        "kv_cache_usage_perc",
        "gpu_cache_usage_perc",
        "prompt_tokens_total",
        "generation_tokens_total",
        "prefix_cache_queries_total",
        "prefix_cache_hits_total",
        "num_preemptions_total",
    ):
        assert (f"vllm:{name}", "") in found
    assert all(
        sample.labels["model_name"] == "fake"
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if family.name.startswith("vllm:")
    )
    api.engine.resume()
    await waiting


class TestLogs:
    async def test_one_line_a_request_without_its_text(
        self, api: Api, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        await api.chat("my secret", stream=True)
        [record] = [r for r in caplog.records if r.getMessage() == "request"]
        fields = record.__dict__["fields"]
        assert (fields["status"], fields["path"], fields["stream"]) == (200, CHAT, True)
        assert fields["prompt_tokens"] > fields["completion_tokens"] > 0
        assert "secret" not in KeyValueFormatter().format(record)

    async def test_text_on_request(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        async with open_api(log_prompts=True) as api:
            answer = await api.complete("my secret", seed=1)
            await api.complete("my secret", seed=1, stream=True)
        for record in [r for r in caplog.records if r.getMessage() == "request"]:
            fields = record.__dict__["fields"]
            assert fields["prompts"] == ["my secret"]
            assert fields["answers"] == [answer.json()["choices"][0]["text"]]

    async def test_a_refusal_says_why(self, api: Api, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        await api.chat(temperature=-1)
        [record] = [r for r in caplog.records if r.getMessage() == "request"]
        assert record.__dict__["fields"]["status"] == 400
        assert "temperature" in record.__dict__["fields"]["reason"]

    def test_the_form_of_a_line(self) -> None:
        assert key_values({"a": 1, "b": "x y", "c": None, "d": 0.5, "e": 'q"\n', "f": ""}) == (
            r'a=1 b="x y" d=0.5 e="q\"\n" f=""'
        )
        record = logging.LogRecord("n", logging.INFO, "", 0, "hello %s", ("you",), None)
        line = KeyValueFormatter().format(record)
        assert line.startswith("time=20")
        assert line.endswith('Z level=info logger=n msg="hello you"')


def test_ends_by_reason_are_all_there() -> None:
    assert {str(reason) for reason in FinishReason} == {"stop", "length", "abort", "error"}
    assert Config().server.log_prompts is False
