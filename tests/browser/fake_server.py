"""A server for the page to talk to, whose answers a test writes word by word.

It speaks the few routes that the page uses. Nothing happens by itself or by time: a chat request
takes the next `Answer` and then says what the test makes it say, when the test makes it.
"""

from __future__ import annotations

import contextlib
import json
import queue
import select
import socket
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from draftmark.core.messages import DraftStats, EngineState, EngineStats
from draftmark.server.metrics import Metrics
from draftmark.server.page import load_page

MODEL = "fake-135m"
_CLOSE = object()


@dataclass
class Reply:
    """One whole HTTP answer."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)


def refusal(status: int, message: str, **headers: str) -> Reply:
    """An OpenAI-style error, with headers such as `Retry_After="3"`."""
    error = {"message": message, "type": "error", "param": None, "code": "error"}
    return Reply(status, {"error": error}, {k.replace("_", "-"): v for k, v in headers.items()})


class Answer:
    """One streamed answer. The client sees each call as soon as it is made."""

    def __init__(self) -> None:
        self.events: queue.Queue[Any] = queue.Queue()
        self.left = threading.Event()  # the client closed the connection before the end
        self._tokens = 0
        self._speculation: dict[str, Any] = {}

    def say(self, text: str, *, tokens: int = 1) -> Answer:
        self._tokens += tokens
        self._send({"index": 0, "delta": {"content": text}, "finish_reason": None})
        return self

    def draft(self, acceptance_length: float) -> Answer:
        """Say in usage from now on that drafts were made."""
        self._speculation = {"speculation": {"acceptance_length": acceptance_length}}
        return self

    def end(self, finish_reason: str = "stop") -> Answer:
        self._send({"index": 0, "delta": {}, "finish_reason": finish_reason})
        self.events.put({"choices": [], "usage": self._usage()})
        self.events.put("[DONE]")
        self.events.put(None)
        return self

    def fail(self, message: str) -> Answer:
        """An error event in the middle of the stream."""
        self.events.put(refusal(500, message).body)
        self.events.put(None)
        return self

    def break_off(self) -> Answer:
        """Close the socket in the middle of the stream."""
        self.events.put(_CLOSE)
        return self

    def cut(self) -> Answer:
        """End the HTTP body properly, but without a finish reason."""
        self.events.put(None)
        return self

    def raw(self, data: bytes) -> Answer:
        """Bytes of the stream as they are: one HTTP chunk, whatever they mean."""
        self.events.put(data)
        return self

    def _send(self, choice: dict[str, Any]) -> None:
        self.events.put({"choices": [choice], "usage": self._usage()})

    def _usage(self) -> dict[str, Any]:
        return {"prompt_tokens": 7, "completion_tokens": self._tokens, **self._speculation}


class FakeServer:
    """Listens on a free port of the loopback. `close` ends every thread it started."""

    def __init__(self) -> None:
        self.page = load_page()
        self.answers: queue.Queue[Answer | Reply] = queue.Queue()
        self.chats: list[dict[str, Any]] = []
        self.authorizations: list[str | None] = []
        self.instead: dict[str, Reply] = {}  # path -> what it answers now instead
        self.metrics = metrics_text()
        self.metrics_reads = 0
        self.closing = threading.Event()
        self.faults: list[BaseException] = []
        self._http = _Http(("127.0.0.1", 0), _Handler)
        self._http.fake = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/"

    def next_answer(self, *more: Answer | Reply) -> Answer:
        """Queue an answer for the next chat request, or the given ones."""
        answer = Answer()
        for item in more or (answer,):
            self.answers.put(item)
        return answer

    def close(self) -> None:
        self.closing.set()
        self._http.shutdown()
        self._thread.join()
        self._http.hang_up()
        self._http.server_close()


class _Http(ThreadingHTTPServer):
    daemon_threads = False  # so that server_close joins them
    fake: FakeServer

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def close_request(self, request: Any) -> None:
        self._open.discard(request)
        super().close_request(request)

    def hang_up(self) -> None:
        """End connections that a browser keeps open, and with them their threads."""
        for connection in list(self._open):
            # It may end by itself at this very moment.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        # A browser that leaves while something is written to it is no fault of this server.
        if error is not None and not isinstance(error, ConnectionError):
            self.fake.faults.append(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Http

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        fake = self.server.fake
        if self.path == "/":
            self._write(200, fake.page.body, fake.page.headers)
        elif self.path in fake.instead:
            self._reply(fake.instead[self.path])
        elif self.path == "/metrics":
            fake.metrics_reads += 1
            self._write(200, fake.metrics.encode(), {"Content-Type": "text/plain"})
        elif self.path == "/v1/models":
            self._reply(Reply(200, {"data": [{"id": MODEL, "max_model_len": 8192}]}))
        elif self.path == "/v1/engine/config":
            self._reply(Reply(200, CONFIG))
        else:
            self._reply(refusal(404, "No such route."))

    def do_POST(self) -> None:
        fake = self.server.fake
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fake.chats.append(body)
        fake.authorizations.append(self.headers["Authorization"])
        if self.path in fake.instead:
            return self._reply(fake.instead[self.path])
        answer = fake.answers.get(timeout=10)
        return self._reply(answer) if isinstance(answer, Reply) else self._stream(answer)

    def _stream(self, answer: Answer) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while not self.server.fake.closing.is_set():
            try:
                event = answer.events.get(timeout=0.01)
            except queue.Empty:
                if not self._has_left():
                    continue
                answer.left.set()
                break
            if event is _CLOSE:
                break
            if event is None:
                self.wfile.write(b"0\r\n\r\n")
                return
            self._chunk(event if isinstance(event, bytes) else _sse(event))
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _has_left(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and self.connection.recv(1, socket.MSG_PEEK) == b""

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _reply(self, reply: Reply) -> None:
        headers = {"Content-Type": "application/json", **reply.headers}
        self._write(reply.status, json.dumps(reply.body).encode(), headers)

    def _write(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _sse(event: Any) -> bytes:
    text = event if isinstance(event, str) else json.dumps(event)
    return f"data: {text}\n\n".encode()


CONFIG: dict[str, Any] = {
    "model": {"dtype": {"value": "float32", "source": "measured"}},
    "sampling": {"temperature": {"value": 0.2, "source": "built-in model"}},
}


def metrics_text(
    *,
    running: int = 0,
    waiting: int = 0,
    kv_usage: float = 0.0,
    generated: int = 0,
    hits: int = 0,
    queries: int = 0,
    ttft: dict[str, int] | None = None,
    drafts: DraftStats | None = None,
) -> str:
    """Prometheus text with the names the page reads. `ttft`: cumulative counts by `le`. `drafts`
    are told as the real server tells them."""
    label = f'{{model_name="{MODEL}"}}'
    rows = [
        f"vllm:num_requests_running{label} {float(running)}",
        f"vllm:num_requests_waiting{label} {float(waiting)}",
        f"vllm:kv_cache_usage_perc{label} {kv_usage}",
        f"vllm:generation_tokens_total{label} {float(generated)}",
        f"vllm:prefix_cache_hits_total{label} {float(hits)}",
        f"vllm:prefix_cache_queries_total{label} {float(queries)}",
    ]
    buckets = ttft or {"0.1": 0, "1.0": 0, "+Inf": 0}
    rows += [
        f'vllm:time_to_first_token_seconds_bucket{{le="{le}",model_name="{MODEL}"}} {float(count)}'
        for le, count in buckets.items()
    ]
    if drafts is not None:
        stats = EngineStats(drafts=drafts)
        metrics = Metrics(model=MODEL, state=lambda: EngineState("ready"), stats=lambda: stats)
        told = metrics.text().decode().splitlines()
        rows += [line for line in told if line.startswith("draftmark_draft_")]
    return "# HELP vllm:num_requests_running Requests.\n" + "\n".join(rows) + "\n"
