"""Around every request: its id, who may ask, one log line, and no fault without an answer."""

from __future__ import annotations

import logging
import re
import time
import uuid

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from draftmark.core.errors import DraftmarkError
from draftmark.server.access import OPEN_PATHS
from draftmark.server.logs import RequestLog
from draftmark.server.problems import error_response, internal_error
from draftmark.server.respond import CLIENT_LEFT
from draftmark.server.service import Service

logger = logging.getLogger(__name__)

ID_HEADER = "x-request-id"
_GOOD_ID = re.compile(r"[\x21-\x7e]{1,128}\Z")


class RequestScope:
    """The outermost layer. Leaves the request's `RequestLog` in `scope["state"]["log"]`."""

    def __init__(self, app: ASGIApp, *, service: Service, paths: frozenset[str]) -> None:
        self._app = app
        self._service = service
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # there is no other protocol here
        log = _open_log(scope)
        scope.setdefault("state", {})["log"] = log
        own_header = (ID_HEADER.encode(), log.request_id.encode())

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                log.status = message["status"]
                message["headers"] = [*message.get("headers", ()), own_header]
            await send(message)

        try:
            await self._guarded(scope, receive, send_with_id, log)
        finally:
            path = log.path if log.path in self._paths else "other"
            self._service.metrics.http.labels(path, str(log.status)).inc()
            log.write(logger, now=time.perf_counter())

    async def _guarded(self, scope: Scope, receive: Receive, send: Send, log: RequestLog) -> None:
        try:
            headers = Headers(scope=scope)
            self._service.hosts.check(headers)
            if log.path not in OPEN_PATHS:
                self._service.keys.check(headers.get("authorization"))
            await self._app(scope, receive, send)
        except ClientDisconnect:
            log.status = CLIENT_LEFT
        except DraftmarkError as error:
            log.fields |= {"error": error.code, "reason": error.message}
            await error_response(error)(scope, receive, send)
        except Exception:
            # Process edge: one broken request must not end the connection without a word.
            logger.exception("request failed", extra={"fields": {"request_id": log.request_id}})
            if not log.status:
                await error_response(internal_error())(scope, receive, send)


def _open_log(scope: Scope) -> RequestLog:
    given = Headers(scope=scope).get(ID_HEADER, "")
    request_id = given if _GOOD_ID.match(given) else uuid.uuid4().hex
    return RequestLog(request_id, scope["method"], scope["path"], time.perf_counter())
