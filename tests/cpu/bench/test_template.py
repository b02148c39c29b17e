"""What a chat template adds is learnt from the usage of one request."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmark.bench.ask import Asker
from draftmark.bench.template import template_tokens
from draftmark.core.errors import Unavailable
from tests.fakes.answers import chat_answer
from tests.fakes.bench_tokens import file_tokenizer
from tests.fakes.scripted_http import Status, scripted_http

CHAT = "POST /v1/chat/completions"


def test_it_is_what_the_server_counts_beyond_the_text(tmp_path: Path) -> None:
    tokenizer = file_tokenizer(tmp_path)
    answer = chat_answer("a")
    answer["usage"]["prompt_tokens"] = len("Hello") + 12
    with scripted_http({CHAT: answer}) as server:
        assert template_tokens(Asker(server.url, model="m"), tokenizer) == 12
        assert server.asked[0][3]["messages"] == [{"role": "user", "content": "Hello"}]


def test_a_server_that_does_not_count_leaves_it_unknown(tmp_path: Path) -> None:
    answer = chat_answer("a")
    del answer["usage"]
    with scripted_http({CHAT: answer}) as server:
        assert template_tokens(Asker(server.url, model="m"), file_tokenizer(tmp_path)) is None


def test_a_server_that_fails_is_no_template(tmp_path: Path) -> None:
    with (
        scripted_http({CHAT: Status(503, "loading")}) as server,
        pytest.raises(Unavailable, match="to learn the template from: http_5xx"),
    ):
        template_tokens(Asker(server.url, model="m"), file_tokenizer(tmp_path))
