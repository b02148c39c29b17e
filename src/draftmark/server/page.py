"""The page at `/`: one static file and the headers it is served with.

Its one style and one script are inline, and the Content-Security-Policy names them by hash: the
browser runs these exact bytes, and nothing that an answer of a model could smuggle in.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Page:
    """The bytes of the page and its response headers."""

    body: bytes
    headers: dict[str, str]


def load_page() -> Page:
    """Read the page from the package and compute its policy. Done once, at start."""
    body = files("draftmark.server").joinpath("static/index.html").read_bytes()
    headers = {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": _policy(body),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        # Asked again on each visit, so that a new version of the server shows its new page.
        "Cache-Control": "no-cache",
    }
    return Page(body, headers)


def _policy(body: bytes) -> str:
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hashes(body, b'script')}",
            f"style-src {_hashes(body, b'style')}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def _hashes(body: bytes, tag: bytes) -> str:
    """The source expressions that allow the inline elements of this tag."""
    contents = re.findall(rb"<%b\b[^>]*>(.*?)</%b>" % (tag, tag), body, re.DOTALL)
    digests = (base64.b64encode(hashlib.sha256(text).digest()).decode() for text in contents)
    return " ".join(f"'sha256-{digest}'" for digest in digests)
