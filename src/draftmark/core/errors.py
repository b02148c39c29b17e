"""Every error a user can meet, with its HTTP status and a stable code.

    DraftmarkError
    ├── RequestError            400  the request is wrong; `param` names the field
    │   ├── UnsupportedField    400  a known field whose feature is not built
    │   ├── ContextOverflow     400  prompt (+ max_tokens) does not fit
    │   ├── ModelNotFound       404
    │   ├── Unauthorized        401
    │   ├── Forbidden           403  Host or Origin refused
    │   └── BodyTooLarge        413
    ├── Overloaded              429  the queue is full; retry later
    ├── Unavailable             503  loading, draining or failed
    ├── EngineFailure           500  the engine ended the request (or itself)
    ├── ConfigError                  a flag, file key or combination is wrong; ends the command
    │   ├── NotBuilt                 a value whose feature is not built yet
    │   └── BudgetError              the memory budget is impossible; proposes flags that fit
    └── ModelError                   a model cannot be found, read or understood; ends the command
        └── CheckpointError          missing, surplus, corrupt or truncated tensors

A user's fault is one of these. Our own fault is an `assert` or a plain crash.
"""

from __future__ import annotations

from typing import ClassVar


class DraftmarkError(Exception):
    """Base of the tree. `message` is one sentence meant for the person who made the request."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def body(self) -> dict[str, dict[str, str | None]]:
        """The OpenAI-style error object."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }


class RequestError(DraftmarkError):
    status = 400
    type = "invalid_request_error"
    code = "invalid_value"


class UnsupportedField(RequestError):
    code = "unsupported_parameter"


class ContextOverflow(RequestError):
    code = "context_length_exceeded"


class ModelNotFound(RequestError):
    status = 404
    code = "model_not_found"


class Unauthorized(RequestError):
    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


class Forbidden(RequestError):
    status = 403
    type = "permission_error"
    code = "forbidden"


class BodyTooLarge(RequestError):
    status = 413
    code = "body_too_large"


class Overloaded(DraftmarkError):
    """The bounded queue is full. `retry_after_s` goes into the `Retry-After` header."""

    status = 429
    type = "rate_limit_error"
    code = "server_overloaded"

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(DraftmarkError):
    status = 503
    type = "service_unavailable"
    code = "unavailable"


class EngineFailure(DraftmarkError):
    code = "engine_failure"


class ConfigError(DraftmarkError):
    type = "config_error"
    code = "config_error"


class NotBuilt(ConfigError):
    code = "not_built"


class BudgetError(ConfigError):
    code = "impossible_budget"


class ModelError(DraftmarkError):
    type = "model_error"
    code = "model_error"


class CheckpointError(ModelError):
    code = "checkpoint_error"
