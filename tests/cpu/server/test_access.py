"""Keys, and the Host and Origin headers that protect a server on the loopback."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmark.core.errors import ConfigError
from draftmark.server.access import ApiKeys, HostPolicy, is_loopback
from tests.fakes.api import CHAT, Api, chat_body, open_api

GUARDED = [
    ("POST", CHAT),
    ("POST", "/v1/completions"),
    ("GET", "/v1/models"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/v1/engine/config"),
    ("GET", "/v1/engine/stacks"),
    ("POST", "/v1/engine/cache/reset"),
    ("GET", "/no/such/path"),
]


@pytest.mark.parametrize(("method", "path"), GUARDED)
async def test_a_key_is_needed(method: str, path: str) -> None:
    async with open_api(keys=("first", "# a comment", "", "second")) as api:
        for given in (None, "Bearer wrong", "Bearer", "Basic first", "first", "Bearer # a comment"):
            headers = {"Authorization": given} if given else {}
            response = await api.client.request(method, path, headers=headers)
            assert response.status_code == 401
            assert response.json()["error"]["code"] == "invalid_api_key"
            assert response.headers["www-authenticate"] == "Bearer"
        for key in ("first", "second"):
            headers = {"Authorization": f"bearer {key}"}
            response = await api.client.request(method, path, headers=headers)
            assert response.status_code != 401
    assert not api.engine.submitted


@pytest.mark.parametrize("path", ["/", "/health", "/readyz", "/livez", "/metrics"])
async def test_probes_and_the_page_need_none(path: str) -> None:
    async with open_api(keys=("first",)) as api:
        assert (await api.client.get(path)).status_code == 200


def test_key_files(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    with pytest.raises(ConfigError, match="--api-key-file"):
        ApiKeys.read(str(file))
    file.write_text("\n# nothing\n")
    with pytest.raises(ConfigError, match="holds no key"):
        ApiKeys.read(str(file))
    file.write_text("  k1  \nk2\n")
    assert len(ApiKeys.read(str(file)).digests) == 2
    assert ApiKeys.read(None).digests == ()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:9", 200),
        ("localhost.", 200),
        ("127.0.0.1:8000", 200),
        ("127.9.9.9", 200),
        ("[::1]:8000", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example:8000", 403),
        ("10.0.0.1", 403),
        ("[::1", 403),
        ("", 403),
    ],
)
async def test_the_host_header_on_the_loopback(api: Api, host: str, status: int) -> None:
    response = await api.client.get("/livez", headers={"Host": host})
    assert response.status_code == status
    if status == 403:
        assert response.json()["error"]["param"] == "Host"


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 200),
        ("http://127.0.0.1:8000", 200),
        ("https://evil.example", 403),
        ("null", 403),
        ("http://[", 403),
        ("", 403),
    ],
)
async def test_the_origin_header_on_the_loopback(api: Api, origin: str, status: int) -> None:
    response = await api.client.post(CHAT, json=chat_body(), headers={"Origin": origin})
    assert response.status_code == status
    if status == 403:
        assert response.json()["error"]["param"] == "Origin"
        assert not api.engine.submitted


def test_which_names_are_checked_where() -> None:
    assert HostPolicy.make("0.0.0.0", ()).names is None
    assert HostPolicy.make("127.0.0.1", ("*",)).names is None
    assert HostPolicy.make("0.0.0.0", ("Box.lan",)).names == {"box.lan", "localhost", "0.0.0.0"}
    assert HostPolicy.make("localhost", ("box",)).names == {"box", "localhost"}
    assert [is_loopback(host) for host in ("127.1.2.3", "::1", "localhost")] == [True] * 3
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "box", "10.0.0.1")] == [False] * 4


async def test_allowed_names_are_added() -> None:
    async with open_api(allowed_hosts=("box.lan",)) as api:
        for host, status in (("box.lan:80", 200), ("localhost", 200), ("other", 403)):
            response = await api.client.get("/livez", headers={"Host": host})
            assert response.status_code == status
