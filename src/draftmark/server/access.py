"""Who may ask: API keys, and the Host and Origin headers of a browser.

A web page anywhere can make its reader's browser send requests to 127.0.0.1, under a name of its
own that resolves there (DNS rebinding). Such a request names a foreign Host or Origin, and a server
that listens on the loopback refuses those by header.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from draftmark.core.errors import ConfigError, Forbidden, Unauthorized

# Answer without a key: probes, scrapers and the page that asks for the key.
OPEN_PATHS = frozenset({"/", "/health", "/readyz", "/livez", "/metrics"})
_ANY = "*"


@dataclass(frozen=True, slots=True)
class ApiKeys:
    """SHA-256 of every key that is accepted; none at all accepts everybody."""

    digests: tuple[bytes, ...] = ()

    @classmethod
    def read(cls, path: str | None) -> ApiKeys:
        """One key a line; blank lines and lines that begin with # do not count."""
        if path is None:
            return cls()
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--api-key-file {path}: {error}", param="api_key_file") from error
        keys = [line.strip() for line in lines]
        keys = [key for key in keys if key and not key.startswith("#")]
        if not keys:
            raise ConfigError(f"--api-key-file {path} holds no key", param="api_key_file")
        return cls(tuple(_digest(key) for key in keys))

    def check(self, authorization: str | None) -> None:
        """Raise `Unauthorized` unless the header carries a key. Takes the same time for any."""
        if not self.digests:
            return
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise Unauthorized("an API key is needed: send the header Authorization: Bearer KEY")
        given = _digest(key.strip())
        matches = [hmac.compare_digest(given, digest) for digest in self.digests]
        if not any(matches):
            raise Unauthorized("this API key is not known here")


@dataclass(frozen=True, slots=True)
class HostPolicy:
    """The names this server answers to; None for any."""

    names: frozenset[str] | None

    @classmethod
    def make(cls, host: str, allowed: Iterable[str]) -> HostPolicy:
        """`host` is the address listened on. On any but the loopback, names are checked only where
        some were given: nobody can know under which names a machine is reached.
        """
        given = frozenset(name.lower() for name in allowed)
        if _ANY in given or not (given or is_loopback(host)):
            return cls(None)
        return cls(given | {"localhost", host.lower()})

    def check(self, headers: Headers) -> None:
        """Raise `Forbidden` naming the header."""
        if self.names is None:
            return
        hosts = headers.getlist("host")
        if not hosts or not all(self._accepts(_name_of(f"//{host}")) for host in hosts):
            raise Forbidden(
                f"Host {', '.join(hosts)[:200]!r} is not a name of this server; "
                "--allowed-hosts adds one",
                param="Host",
            )
        for origin in headers.getlist("origin"):
            if not self._accepts(_name_of(origin)):
                raise Forbidden(
                    f"Origin {origin[:200]!r} may not use this server; --allowed-hosts adds one",
                    param="Origin",
                )

    def _accepts(self, name: str) -> bool:
        assert self.names is not None
        return name in self.names or is_loopback(name)


def is_loopback(host: str) -> bool:
    """True for localhost and for addresses of the loopback."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name, and no name but localhost is sure to stay here


def _name_of(url: str) -> str:
    """The host in a URL without its port, in lower case; empty when there is none."""
    try:
        return (urlsplit(url).hostname or "").removesuffix(".")
    except ValueError:
        return ""  # not a URL, so nothing that could be accepted


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()
