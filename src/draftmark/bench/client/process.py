"""A shard as its parent holds it: the process, its pipes, the distance of its clock."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from time import perf_counter_ns

import msgspec

from draftmark.bench.client.messages import (
    AskClock,
    Clock,
    FromShard,
    ToShard,
    decode_from_shard,
    frame,
    frames_of,
)

_CLOCK_TRIES = 16
_END_S = 5.0


class Word(msgspec.Struct, frozen=True):
    """What a shard said and when it was read; `message` is None when the shard has ended."""

    shard: ShardProcess
    message: FromShard | None
    read_at: int


class ShardProcess:
    """Starts one. Everything that it says goes into `words`."""

    def __init__(self, words: queue.SimpleQueue[Word], *, pass_fds: tuple[int, ...] = ()) -> None:
        self.offset = 0
        self._words = words
        self._process = subprocess.Popen(
            [sys.executable, "-m", "draftmark.bench.client.shard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=pass_fds,
            bufsize=0,
            # A group of its own: Ctrl-C is for the parent, which ends the shards in order.
            process_group=0,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def tell(self, message: ToShard) -> None:
        """Raises `BrokenPipeError` when the shard is gone."""
        assert self._process.stdin is not None
        data = memoryview(frame(message))
        while data:
            data = data[os.write(self._process.stdin.fileno(), data) :]

    def compare_clocks(self) -> None:
        """Set `offset`, the shard's clock minus this one's, by the quickest of several questions.

        What is within that question's own uncertainty is no offset: processes of one machine
        usually have one clock.
        """
        best_trip, offset = 0, 0
        for _ in range(_CLOCK_TRIES):
            self.tell(AskClock(asked=perf_counter_ns()))
            word = self._words.get()
            assert word.shard is self and isinstance(word.message, Clock), "nothing else speaks now"
            trip = word.read_at - word.message.asked
            if not best_trip or trip < best_trip:
                best_trip, offset = (
                    trip,
                    word.message.now - (word.message.asked + word.read_at) // 2,
                )
        self.offset = 0 if abs(offset) <= best_trip // 2 else offset

    def end(self) -> None:
        """Let it go, by force if it does not."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for content in frames_of(self._process.stdout):
            self._words.put(Word(self, decode_from_shard(content), perf_counter_ns()))
        self._words.put(Word(self, None, perf_counter_ns()))
