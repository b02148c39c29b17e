"""One API call while it runs: submitted once, read piece by piece, aborted if somebody leaves.

Whoever reads `pieces` calls `abandon` afterwards, whatever happened: what has not ended then is
aborted, what has ended is left alone.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec.structs import replace

from draftmark.core.request import FinishReason
from draftmark.engine.results import check_end
from draftmark.engine.textstream import TextAssembler, TextDelta, TextStream
from draftmark.server.assemble import ChoiceAssembler, Piece, usage_of
from draftmark.server.metrics import ChoiceTimer, Metrics
from draftmark.server.prepared import Choice, Prepared
from draftmark.server.responses import Usage
from draftmark.server.seam import ServedEngine
from draftmark.text.tokenizer import Tokenizer


class Answer:
    """The choices of one call. `arrived` is when the request came, on the clock of `time`'s
    `perf_counter`; `label` names the call in the logs of all processes.
    """

    def __init__(
        self,
        prepared: Prepared,
        *,
        engine: ServedEngine,
        tokenizer: Tokenizer,
        metrics: Metrics,
        arrived: float,
        label: str,
    ) -> None:
        self.prepared = prepared
        self._engine = engine
        self._tokenizer = tokenizer
        self._label = label
        self._streams: list[TextStream] = []
        shown = prepared.shown
        self._assemblers = [
            ChoiceAssembler(choice, shown=shown, tokenizer=tokenizer) for choice in prepared.choices
        ]
        self._timers = [
            ChoiceTimer(metrics, arrived=arrived, prompt_tokens=len(choice.prompt.ids))
            for choice in prepared.choices
        ]

    def submit(self) -> None:
        """Hand everything to the engine. Raises `Overloaded` or `Unavailable`, or a
        `RequestError` of the engine's later, from `pieces`.
        """
        choices = self.prepared.choices
        ids = self._engine.new_ids(len(choices))
        requests = [
            replace(choice.request, id=request_id, label=f"{self._label}-{index}")
            for index, (choice, request_id) in enumerate(zip(choices, ids, strict=True))
        ]
        outputs = self._engine.submit(requests)
        self._streams = [
            TextStream(stream, assembler=self._text_assembler(choice), engine=self._engine)
            for stream, choice in zip(outputs, choices, strict=True)
        ]

    async def pieces(self) -> AsyncGenerator[tuple[int, Piece], None]:
        """(choice index, piece) as they come; each choice's last one has `finish_reason`. Raises
        what ended a choice wrongly, after the pieces before it.
        """
        async with aclosing(self._deltas()) as deltas:
            async for index, delta in deltas:
                self._time(index, delta)
                is_bad = delta.finish in (FinishReason.ERROR, FinishReason.ABORT)
                good = dataclasses.replace(delta, finish=None) if is_bad else delta
                piece = self._assemblers[index].feed(good)
                if piece is not None:
                    yield index, piece
                check_end(delta)

    def abandon(self) -> None:
        """Abort every choice that has not ended."""
        now = time.perf_counter()
        for stream, timer in zip(self._streams, self._timers, strict=False):
            stream.abandon()
            timer.end(FinishReason.ABORT, now=now)

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        return usage_of(self._assemblers, self.prepared)

    def _time(self, index: int, delta: TextDelta) -> None:
        now = time.perf_counter()
        self._timers[index].tokens(len(delta.token_ids), now=now)
        if delta.finish is not None:
            self._timers[index].end(delta.finish, now=now)

    def _text_assembler(self, choice: Choice) -> TextAssembler:
        sampling = choice.request.sampling
        return TextAssembler(
            self._tokenizer,
            stop=sampling.stop,
            min_tokens=sampling.min_tokens,
            skip_special_tokens=self.prepared.shown.skip_special_tokens,
        )

    async def _deltas(self) -> AsyncGenerator[tuple[int, TextDelta], None]:
        """Deltas of all choices, whichever comes first. A choice whose reader is behind has at
        most one delta waiting here; the rest pile up, and are joined, in its stream.
        """
        if len(self._streams) == 1:
            async for delta in self._streams[0]:
                yield 0, delta
            return
        waiting = {_next_of(stream): index for index, stream in enumerate(self._streams)}
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=waiting.__getitem__):
                    index, delta = waiting.pop(task), task.result()
                    if delta.finish is None:
                        waiting[_next_of(self._streams[index])] = index
                    yield index, delta
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


def _next_of(stream: TextStream) -> asyncio.Task[TextDelta]:
    return asyncio.create_task(stream.__anext__())
