"""How many tokens a server's chat template puts around a message, learnt from one request.

With it the length of a chat prompt is known before it is sent, and how many tokens at the start of
every prompt a cache may rightly hold.
"""

from __future__ import annotations

from draftmark.bench.ask import Asker
from draftmark.bench.tokenizer import BenchTokenizer
from draftmark.core.errors import ConfigError, Unavailable

_CONTENT = "Hello"


def template_tokens(asker: Asker, tokenizer: BenchTokenizer) -> int | None:
    """Of a chat of one message of a user, generation prompt included; None where the server tells
    no usage. Raises `Unavailable` when it does not answer, `ConfigError` when the tokenizer is not
    the server's."""
    messages = [{"role": "user", "content": _CONTENT}]
    (reply,) = asker.ask([asker.chat(messages, max_tokens=1)])
    if not reply.ok:
        raise Unavailable(f"one chat message to learn the template from: {reply.problem}")
    counted = reply.record.n_in_usage
    if counted is None:
        return None
    own = len(tokenizer.encode(_CONTENT))
    if counted < own:
        raise ConfigError(
            f"the server counts {counted} tokens where the tokenizer finds {own}: it is not that "
            "of the model that is served",
            param="tokenizer",
        )
    return counted - own
