"""Answers in a crowd against answers alone: equal, tied by their probabilities, other, failed."""

from __future__ import annotations

import threading
from typing import Any

from draftmark.bench.ask import Asker
from draftmark.bench.conc import ConcResult, Kind, Word, conc_gate, first_difference, run_conc
from draftmark.bench.result import GateState
from tests.fakes.answers import chat_answer, chat_events, tool_answer
from tests.fakes.scripted_http import Events, Status, scripted_http

CHAT = "POST /v1/chat/completions"


def _logprobs(tokens: list[tuple[str, str, float]]) -> dict[str, Any]:
    """(token, runner-up, margin) each."""
    return {
        "content": [
            {
                "token": token,
                "logprob": -0.5,
                "bytes": [],
                "top_logprobs": [
                    {"token": token, "logprob": -0.5},
                    {"token": other, "logprob": -0.5 - margin},
                ],
            }
            for token, other, margin in tokens
        ]
    }


class _Model:
    """Answers each request alike, but for the `odd` ones from their second time on."""

    def __init__(self, *, margin: float, odd: tuple[str, ...] = (), changed: Any = "y") -> None:
        self.margin, self.odd, self.changed = margin, odd, changed
        self._times: dict[str, int] = {}
        self._lock = threading.Lock()

    def __call__(self, body: Any) -> Any:
        asked = body["messages"][0]["content"]
        with self._lock:
            self._times[asked] = self._times.get(asked, 0) + 1
            is_other = self._times[asked] > 1 and any(part in asked for part in self.odd)
        if is_other and not isinstance(self.changed, str):
            return self.changed
        if "weather" in asked:
            return tool_answer("get_weather", '{"city": "%s"}' % ("?" if is_other else asked))
        second = self.changed if is_other else "x"
        tokens = [("so ", "as ", 3.0), (second, "y" if second == "x" else "x", self.margin)]
        if body.get("stream"):
            events = chat_events([token for token, _, _ in tokens])
            for chunk, token in zip(events.events[1:3], tokens, strict=True):
                chunk["choices"][0]["logprobs"] = _logprobs([token])
            return events
        answer = chat_answer("".join(token for token, _, _ in tokens))
        answer["choices"][0]["logprobs"] = _logprobs(tokens)
        return answer


def _run(answer: Any, **more: Any) -> tuple[ConcResult, list[Any]]:
    with scripted_http({CHAT: answer}) as server:
        result = run_conc(
            Asker(server.url, model="m", timeout_s=30), in_flight=8, long_tokens=50, **more
        )
        return result, [asked[3] for asked in server.asked]


def test_a_sound_server_gives_equal_answers_to_all_kinds() -> None:
    rounds: list[int] = []
    result, bodies = _run(_Model(margin=1.0), on_round=rounds.append)
    assert (result.equal, result.ties, result.differs, result.failed) == (24, 0, 0, 0)
    assert (result.outcomes, result.left_out, rounds) == ([], [], [1, 2, 3])
    assert conc_gate(result, evidence="conc.json").state is GateState.OK
    asked = bodies[2:]  # two probes
    assert len(asked) == 8 + 24
    assert sum("tools" in body for body in asked) == 8
    assert sum(bool(body.get("stream")) for body in asked) == 8
    assert len({body["messages"][0]["content"] for body in asked}) == 8
    assert all(body["top_logprobs"] == 2 for body in asked)


def test_a_near_tie_is_told_by_the_solo_answer() -> None:
    result, _ = _run(_Model(margin=0.01, odd=("(0)", "(2)")))
    assert (result.equal, result.ties, result.differs) == (18, 6, 0)
    outcome = result.outcomes[0]
    assert (outcome.word, outcome.at, round(outcome.margin or 0, 6)) == (Word.TIE, 1, 0.01)
    assert {outcome.kind for outcome in result.outcomes} == {Kind.SHORT, Kind.STREAMED}
    assert conc_gate(result, evidence="").state is GateState.OK


def test_mostly_ties_prove_little() -> None:
    result, _ = _run(_Model(margin=0.01, odd=("Write a few", "Text ")))
    assert result.ties > result.equal
    assert conc_gate(result, evidence="").state is GateState.UNKNOWN


def test_a_clear_choice_that_changes_differs() -> None:
    result, _ = _run(_Model(margin=0.5, odd=("(0)",)))
    assert (result.equal, result.ties, result.differs) == (21, 0, 3)
    assert result.outcomes[0].note == "'x' alone, 'y' in the crowd"
    assert conc_gate(result, evidence="").state is GateState.FAIL
    assert _run(_Model(margin=0.5, odd=("(0)",)), tie_nats=0.6)[0].ties == 3


def test_another_token_than_the_runner_up_is_no_tie() -> None:
    result, _ = _run(_Model(margin=0.01, odd=("(0)",), changed="z"))
    assert (result.ties, result.differs) == (0, 3)


def test_a_changed_call_differs() -> None:
    result, _ = _run(_Model(margin=0.01, odd=("weather",)))
    assert {outcome.kind for outcome in result.outcomes} == {Kind.TOOL}
    assert result.differs == 6


def test_a_failure_in_the_crowd_is_a_failure() -> None:
    result, _ = _run(_Model(margin=1.0, odd=("(0)",), changed=Status(500, "boom")))
    assert (result.equal, result.failed) == (21, 3)
    assert result.outcomes[0].note == "in the crowd: http_5xx: HTTP 500: boom"
    cut = Events([{"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]}])
    assert _run(_Model(margin=1.0, odd=("(2)",), changed=cut))[0].failed == 3


def test_what_a_server_does_not_take_is_left_out_and_said() -> None:
    model = _Model(margin=0.01, odd=("(0)",))

    def answer(body: Any) -> Any:
        for field in ("tools", "logprobs"):
            if field in body:
                return Status(400, {"error": {"message": f"{field} is not supported"}})
        answer = model(body)
        if not isinstance(answer, Events):
            del answer["choices"][0]["logprobs"]
        return answer

    result, bodies = _run(answer)
    assert [reason.split(":")[0] for reason in result.left_out] == ["logprobs", "tools"]
    assert "tools is not supported" in result.left_out[1]
    assert not any("tools" in body or "logprobs" in body for body in bodies[2:])
    assert (result.ties, result.differs) == (0, 3)  # without probabilities nothing is a tie


def test_first_differences() -> None:
    assert first_difference("abc", "abd") == 2
    assert first_difference("ab", "abc") == 2
    assert first_difference("", "") is None
