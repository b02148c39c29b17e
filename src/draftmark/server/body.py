"""From the bytes of a request to one of the types of `protocol`, or a refusal that names a field.

Bodies are read with a limit and never held beyond it. JSON is decoded by msgspec; only where that
fails is the body looked at again, slowly, to say which field is at fault.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from draftmark.core.errors import BodyTooLarge, RequestError
from draftmark.server.fields import refuse_unsupported

MAX_BODY_BYTES = 32 * 2**20
# A client that is cut off in the middle of sending often misses the answer, so this much more is
# read and thrown away.
_DISCARD_BYTES = 4 * MAX_BODY_BYTES

_T = TypeVar("_T", bound=msgspec.Struct)
_AT = re.compile(r" - at `\$(.*)`\Z")
_MISSING = re.compile(r"Object missing required field `(.*)`")


async def read_body(request: Request, *, limit: int = MAX_BODY_BYTES) -> bytes:
    """The whole body. Raises `BodyTooLarge` without ever holding more than `limit` bytes."""
    length = request.headers.get("content-length", "")
    declared = int(length) if length.isascii() and length.isdigit() else 0
    if declared > limit and ("expect" in request.headers or declared > _DISCARD_BYTES):
        raise _too_large(limit)  # the client has not begun to send, or would not stop
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
        else:
            chunks.clear()
        if size > _DISCARD_BYTES:
            break
    if size > limit:
        raise _too_large(limit)
    return b"".join(chunks)


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body is larger than {limit} bytes ({limit // 2**20} MiB)")


def parse(body: bytes, kind: type[_T]) -> tuple[_T, list[str]]:
    """The request in `body` and the names of its unknown fields. Raises `RequestError`."""
    data = decode_object(body)
    unknown = refuse_unsupported(data, served=kind.__struct_fields__)
    try:
        request = msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise _wrong_type(str(error)) from error
    options = data.get("stream_options")
    if isinstance(options, dict):
        known = ("include_usage", "continuous_usage_stats", "include_obfuscation")
        unknown += [f"stream_options.{name}" for name in options if name not in known]
    return request, unknown


def decode_object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`. Raises `RequestError`, naming a field where one is at fault."""
    if not body.strip():
        raise RequestError("the body is empty, a JSON object is wanted")
    try:
        data = msgspec.json.decode(body)
    except RecursionError as error:
        raise RequestError("the body is nested too deeply") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise _not_json(body, str(error)) from error
    if not isinstance(data, dict):
        raise RequestError(f"the body must be a JSON object, not {_json_name(data)}")
    return data


def _not_json(body: bytes, reason: str) -> RequestError:
    """Python's own decoder takes half surrogates, NaN and 1e999, so it can find where they are."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        lines = str(error).splitlines()
        return RequestError(f"the body is not valid JSON: {lines[0] if lines else reason}")
    for where, fault in _faults(data, ""):
        return RequestError(f"{where or 'the body'} {fault}", param=where or None)
    return RequestError(f"the body is not valid JSON: {reason}")


def _faults(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """(path, what is wrong) of every value that is not JSON."""
    if isinstance(value, str):
        if any("\ud800" <= char <= "\udfff" for char in value):
            yield where, "holds half of a surrogate pair, which is no character"
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield where, "is not a finite number"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _faults(item, f"{where}[{index}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            shown = name.encode("utf-8", "replace").decode()
            at = f"{where}.{shown}" if where else shown
            yield from _faults(name, at)
            yield from _faults(item, at)


def _wrong_type(message: str) -> RequestError:
    """Turn msgspec's "Expected `int | null`, got `str` - at `$.n`" into our words."""
    at = _AT.search(message)
    where = at[1].lstrip(".").removesuffix("[...]") if at else ""
    missing = _MISSING.match(message)
    if missing:
        field = f"{where}.{missing[1]}" if where else missing[1]
        return RequestError(f"{field} is required", param=field)
    said = message[: at.start()] if at else message
    said = said.replace("`", "").replace(" | null", "").replace(" | ", " or ")
    said = said[:1].lower() + said[1:]
    return RequestError(f"{where or 'the body'}: {said}", param=where or None)


def _json_name(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
