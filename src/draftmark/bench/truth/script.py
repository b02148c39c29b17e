"""What the truth server answers, as data: a few fields for the usual, or each step and its time."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec


class Kind(StrEnum):
    """What one step writes. The last five end the connection or more."""

    ROLE = "role"
    TEXT = "text"
    REASONING = "reasoning"
    TOOL = "tool"
    # A delta without anything: a decode step whose text is held back.
    EMPTY = "empty"
    # A comment line, as servers send to keep a connection alive.
    COMMENT = "comment"
    FINISH = "finish"
    USAGE = "usage"
    ERROR = "error"
    # The step's text as it is, whatever it is.
    RAW = "raw"
    DONE = "done"
    # The end of the body, as HTTP has it.
    END = "end"
    # The connection ends in the middle of the body: by a FIN, or by a RST.
    CUT = "cut"
    RESET = "reset"
    # Nothing more, and the connection stays.
    STALL = "stall"
    # Every connection ends at once and new ones are refused.
    DIE = "die"


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`at_ms` is after the request had been read. `tokens` are what the step brings."""

    at_ms: float
    kind: Kind
    text: str = ""
    tokens: int = 0
    # The reason for the end, on the step that has it.
    finish: str | None = None


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer to one request. With `steps` only those are written, at their times."""

    steps: list[Step] | None = None
    status: int = 200
    message: str = "scripted"

    ttft_ms: float = 5.0
    # Between events, all alike or one by one (then there is one event more than gaps).
    gap_ms: float = 2.0
    gaps_ms: list[float] | None = None
    # None: as many as the request allows.
    tokens: int | None = None
    tokens_per_event: int = 1
    first_tokens: int | None = None

    role_chunk: bool = True
    reasoning_tokens: int = 0
    reasoning_field: Literal["reasoning_content", "reasoning", "both"] = "reasoning_content"
    as_tool_call: bool = False
    # Events, by number from 0, whose text is held back and comes with the next one.
    empty_events: list[int] = []
    comments: bool = False
    crlf: bool = False
    digit_noise: bool = False

    usage: Literal["final", "continuous", "with_finish", "none"] = "final"
    token_ids: bool = False
    cached_tokens: int | None = None
    prompt_tokens_off: int = 0
    finish: str | None = "length"
    # The reason comes on a chunk of its own instead of the last text's.
    bare_finish: bool = False
    done: bool = True

    # After this many events: an error in the stream, silence, a cut, or the server's death.
    breaks_after: int | None = None
    breaks_by: Kind = Kind.CUT


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The n-th request is answered by the n-th reply, later ones by the last. A request may bring
    its own reply in the field `truth` of its body."""

    replies: list[Reply] = msgspec.field(default_factory=lambda: [Reply()])
    model: str = "truth"
    max_model_len: int = 131_072
    # The status of /health.
    health: int = 200
    # Under whose names /metrics tells; empty: there is no /metrics.
    metrics: tuple[Literal["draftmark", "vllm"], ...] = ("draftmark", "vllm")


class WrittenStep(msgspec.Struct, frozen=True, kw_only=True):
    """`t` is `perf_counter_ns` just before the system call: nobody can have seen it earlier."""

    t: int
    kind: Kind
    tokens: int


class Exchange(msgspec.Struct, kw_only=True):
    """What the server really did about one request. `fields` is the body without its prompt."""

    index: int
    path: str
    authorization: str | None
    fields: dict[str, object]
    prompt_tokens: int
    # The first byte of the request, and the last.
    t_first_byte: int
    t_read: int
    written: list[WrittenStep] = []
    # The client ended the connection before the answer was over.
    was_left: bool = False

    @property
    def token_times(self) -> list[int]:
        return [step.t for step in self.written if step.tokens]
