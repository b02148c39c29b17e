"""Answers by their channels, whole and streamed; what fails is a reply too."""

from __future__ import annotations

import re
import signal
import socket
import threading
import time
from typing import Any

from draftmark.bench.ask import Ask, Asker
from draftmark.bench.request import Failure
from draftmark.bench.truth.process import truth_process
from draftmark.bench.truth.script import Kind, Reply, Script, Step
from tests.fakes.answers import chat_answer, chat_events, tool_answer
from tests.fakes.scripted_http import Events, Status, scripted_http

CHAT = "POST /v1/chat/completions"


def _asker(url: str) -> Asker:
    return Asker(url, model="m", timeout_s=30)


def _one(answer: Any, **fields: Any) -> Any:
    with scripted_http({CHAT: answer}) as server:
        asker = _asker(server.url)
        (reply,) = asker.ask([asker.chat([{"role": "user", "content": "hi"}], **fields)])
        assert server.asked[0][3]["model"] == "m"
        assert server.asked[0][3]["temperature"] == 0
    return reply


def test_an_answer_in_one_piece() -> None:
    reply = _one(chat_answer("two words", reasoning_content="so"))
    assert reply.ok and not reply.problem
    assert (reply.content, reply.reasoning, reply.tools) == ("two words", "so", [])
    assert (reply.record.n_out, reply.record.finish) == (2, "stop")
    assert reply.seconds > 0
    assert reply.objects()[0]["object"] == "chat.completion"


def test_a_streamed_answer() -> None:
    reply = _one(chat_events(["two", " words"]), stream=True)
    assert reply.ok
    assert (reply.content, reply.record.n_out, reply.record.finish) == ("two words", 2, "stop")
    assert [len(found["choices"]) for found in reply.objects()] == [1, 1, 1, 1, 0]


def test_calls_of_tools() -> None:
    reply = _one(tool_answer("f", '{"a": 1}'))
    assert [(call.name, call.arguments) for call in reply.tools] == [("f", '{"a": 1}')]


def test_failures_are_replies() -> None:
    cut = Events([{"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]}])
    failures = {
        Failure.HTTP_4XX: Status(400, {"error": {"message": "bad"}}),
        Failure.HTTP_5XX: Status(503, "dying"),
        Failure.TRUNCATED_STREAM: cut,
        Failure.INBAND_ERROR: Events([{"error": {"message": "boom"}}]),
        Failure.BAD_SSE: "no JSON",
    }
    for failure, answer in failures.items():
        reply = _one(answer)
        assert reply.record.failure is failure
        assert reply.problem.startswith(failure)
    assert _one(cut).content == "a"
    assert _one("no JSON").objects() == []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # taken, but nobody listens
        asker = _asker(f"http://127.0.0.1:{taken.getsockname()[1]}")
        (reply,) = asker.ask([Ask(body={})])
    assert reply.record.failure is Failure.REFUSED


def test_as_many_at_a_time_as_asked_and_in_order() -> None:
    lock = threading.Lock()
    running, most = 0, 0

    def answer(body: Any) -> Any:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1
        return chat_answer(body["messages"][0]["content"])

    ended: list[int] = []
    with scripted_http({CHAT: answer}) as server:
        asker = _asker(server.url)
        asks = [asker.chat([{"role": "user", "content": f"w{i}"}]) for i in range(9)]
        replies = asker.ask(asks, in_flight=3, on_reply=lambda index, _: ended.append(index))
    assert [reply.content for reply in replies] == [f"w{i}" for i in range(9)]
    assert sorted(ended) == list(range(9))
    assert most <= 3


def test_bytes_that_are_no_json_go_out_as_they_are() -> None:
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                while b"{broken" not in b"".join(seen):
                    seen.append(connection.recv(4096))
                connection.sendall(b"HTTP/1.1 400 Bad\r\nContent-Length: 2\r\n\r\n{}")

        thread = threading.Thread(target=serve)
        thread.start()
        asker = _asker(f"http://127.0.0.1:{listener.getsockname()[1]}")
        (reply,) = asker.ask([Ask(raw=b"{broken")])
        thread.join()
    assert reply.record.http == 400


def test_a_server_that_is_gone_is_not_asked_for_ever() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # taken, but nobody listens
        asker = _asker(f"http://127.0.0.1:{taken.getsockname()[1]}")
        replies = asker.ask([Ask(body={})] * 50, in_flight=2)
    failures = [reply.record.failure for reply in replies]
    assert 1 <= failures.count(Failure.REFUSED) <= 2
    assert set(failures) == {Failure.REFUSED, Failure.CLIENT_ERROR}
    assert replies[-1].problem.startswith("client_error: not sent: the server is gone: GET http")
    assert asker.stopped is not None
    assert asker.ask([Ask(body={})])[0].record.failure is Failure.CLIENT_ERROR


def test_a_living_server_that_breaks_every_answer_is_not_asked_for_ever() -> None:
    reset = Reply(steps=[Step(at_ms=0, kind=Kind.RESET)])
    with truth_process(Script(replies=[reset])) as truth:
        asker = _asker(truth.url)
        asked = asker.chat([{"role": "user", "content": "x"}], stream=True)
        replies = asker.ask([asked] * 20, in_flight=2)
    # Answers of the same round may break while one of them is looked into.
    told = re.search(r"^client_error: not sent: the last (\d) requests failed", replies[-1].problem)
    assert told is not None and 5 <= int(told[1]) <= 6


def test_refused_requests_of_a_living_server_are_all_asked() -> None:
    with scripted_http({CHAT: Status(400, {"error": {"message": "bad"}})}) as server:
        asker = _asker(server.url)
        replies = asker.ask([Ask(body={})] * 20, in_flight=2)
    assert {reply.record.failure for reply in replies} == {Failure.HTTP_4XX}
    assert asker.stopped is None


def test_an_interruption_keeps_what_there_is() -> None:
    def interrupt(index: int, _: Any) -> None:
        if index == 1:
            signal.raise_signal(signal.SIGINT)

    with scripted_http({CHAT: chat_answer("word")}) as server:
        asker = _asker(server.url)
        asks = [asker.chat([{"role": "user", "content": "x"}])] * 5
        replies = asker.ask(asks, on_reply=interrupt)
        assert [reply.ok for reply in replies] == [True, True, False, False, False]
        assert replies[2].problem == "client_error: not sent: interrupted"
        assert not asker.ask(asks)[0].ok
        assert len(server.asked) <= 3
