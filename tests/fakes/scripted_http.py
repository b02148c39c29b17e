"""An HTTP server of fixed answers: what a server tells of itself, without a server.

A route is `"GET /path"` with what it answers: text, bytes, anything else as JSON, or a function of
the decoded request body that returns one of them. `Status(503, ...)` is an answer other than 200,
`Events([...])` a stream of server-sent events.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Status:
    status: int
    answer: Any = ""


@dataclass
class Events:
    """Each is the JSON of one event, or text that goes out as it stands."""

    events: list[Any]


@dataclass
class Scripted:
    """`asked` are the requests so far: method, path with query, headers, decoded body."""

    routes: dict[str, Any]
    url: str = ""
    asked: list[tuple[str, str, Mapping[str, str], Any]] = field(default_factory=list)


@contextmanager
def scripted_http(routes: dict[str, Any]) -> Iterator[Scripted]:
    """A server on a free port for the time of the block."""
    script = Scripted(routes)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            data = self.rfile.read(length)
            body = json.loads(data) if data else None
            script.asked.append((self.command, self.path, dict(self.headers), body))
            route = f"{self.command} {self.path}"
            answer = script.routes.get(route, script.routes.get(route.partition("?")[0]))
            if callable(answer):
                answer = answer(body)
            self._send(Status(404, {"error": "no route"}) if answer is None else answer)

        do_GET = do_POST = _handle

        def _send(self, answer: Any) -> None:
            status = answer.status if isinstance(answer, Status) else 200
            if isinstance(answer, Status):
                answer = answer.answer
            data = _encode(answer)
            self.send_response(status)
            if isinstance(answer, Events):
                self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128  # a full queue costs a client a second

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    script.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield script
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _encode(answer: Any) -> bytes:
    if isinstance(answer, bytes):
        return answer
    if isinstance(answer, str):
        return answer.encode()
    if isinstance(answer, Events):
        parts = [
            event if isinstance(event, str) else f"data: {json.dumps(event)}\n\n"
            for event in answer.events
        ]
        return "".join(parts).encode()
    return json.dumps(answer).encode()
