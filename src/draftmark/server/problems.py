"""Every refusal and failure as OpenAI's error object, the framework's own included."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from draftmark.core.errors import DraftmarkError, Overloaded, Unauthorized

_RETRY_LOADING_S = 5


def error_response(error: DraftmarkError) -> Response:
    headers: dict[str, str] = {}
    if isinstance(error, Overloaded):
        headers["Retry-After"] = str(error.retry_after_s)
    elif error.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(_RETRY_LOADING_S)
    elif isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    return _json(error.status, error.body(), headers)


def framework_response(request: Request, error: HTTPException) -> Response:
    """Of a path or method that does not exist, and whatever else the framework refuses."""
    phrase = HTTPStatus(error.status_code).phrase
    message = {
        HTTPStatus.NOT_FOUND: f"there is no {request.url.path} here",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{request.url.path} does not take {request.method}",
    }.get(HTTPStatus(error.status_code), error.detail or phrase)
    body = {
        "error": {
            "message": message,
            "type": "invalid_request_error" if error.status_code < 500 else "server_error",
            "param": None,
            "code": phrase.lower().replace(" ", "_"),
        }
    }
    return _json(error.status_code, body, dict(error.headers or {}))


def internal_error() -> DraftmarkError:
    """What a client is told of a fault of ours; the log has the rest."""
    return DraftmarkError("internal error; the server's log has it under this x-request-id")


def _json(status: int, body: object, headers: dict[str, str]) -> Response:
    return Response(
        msgspec.json.encode(body),
        status_code=status,
        headers=headers,
        media_type="application/json",
    )
