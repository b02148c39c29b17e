"""`draftmark stacks`: what every process of a running server is doing."""

from __future__ import annotations

import sys

from draftmark.cli.arguments import CommandParser

_URL = "http://127.0.0.1:8000"
# The server waits for its engine, and the engine for its workers, for a few seconds.
_ANSWER_S = 15.0


def run(argv: list[str]) -> int:
    parser = CommandParser(
        "stacks",
        about="Show what every process of a running server is doing: each stage with its step, "
        "cohort and operation, both ends of each lane, and the stacks of all threads. Where the "
        "engine does not answer, the server's own stacks are shown, with status 1.",
        takes="[FLAGS]",
    )
    parser.own("--url", metavar="URL", default=_URL, help=f"The server. [default: {_URL}]")
    parser.own("--api-key-file", metavar="FILE", help="The key is its first line.")
    given = parser.parse(argv)
    import httpx

    from draftmark.cli.remote import base_url, lost, open_client, read_key, refusal

    with open_client(given.url, api_key=read_key(given.api_key_file)) as client:
        try:
            response = client.get("/v1/engine/stacks", timeout=_ANSWER_S)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise lost(base_url(given.url), error) from error
    if not response.headers.get("Content-Type", "").startswith("text/plain"):
        raise refusal(response)
    sys.stdout.write(response.text)
    return 0 if response.status_code == 200 else 1
