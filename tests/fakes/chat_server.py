"""A chat server for tests of clients: streams what it is told, in a thread, on a free port."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeChatServer(ThreadingHTTPServer):
    """Answers a chat by repeating its last message word by word, with usage in each event.

    A message that begins with `endless` is answered until the client leaves (`has_left` is then
    set); `refuse` gives a 400, `break` an error in the stream, `cut` a stream that just ends.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.has_left = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def chat_server() -> Iterator[FakeChatServer]:
    server = FakeChatServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: FakeChatServer

    def do_GET(self) -> None:
        self.server.keys.append(self.headers.get("Authorization"))
        self._json(200, {"object": "list", "data": [{"id": "echo", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        text = body["messages"][-1]["content"]
        if text.startswith("refuse"):
            self._json(400, {"error": {"message": "messages: refused", "param": "messages"}})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            self._stream(text)
        except (BrokenPipeError, ConnectionResetError):
            self.server.has_left.set()

    def _stream(self, text: str) -> None:
        words = text.split()
        if words[0] == "break":
            self._event({"error": {"message": "rank 0 died"}})
            return
        count = 0
        while words[0] == "endless" or count < len(words):
            piece = f"{words[count % len(words)]} "
            count += 1
            self._event(_chunk({"content": piece}, tokens=count))
        if words[0] == "cut":
            return
        self._event(_chunk({}, tokens=count, finish="stop"))
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, event: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.flush()

    def _json(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def _chunk(delta: dict[str, str], *, tokens: int, finish: str | None = None) -> dict[str, Any]:
    return {
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        "usage": {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens},
    }
