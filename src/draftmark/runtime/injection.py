"""Faults on demand (`--inject`), so that tests can have them in whole processes.

delay=MS            every step and every lane operation of every worker is late, by up to MS
drop=WORKER:STEP    the worker's connections to others over TCP are cut at that step
exit=WORKER:STEP    the worker is gone at that step, without a word
hang=WORKER:STEP    the worker sleeps at that step, for ever
nan=LAYER:STEP      from that step on the layer gives NaN, whichever worker has it

Steps are those of serving: it begins when their numbers begin again after the warm-up.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import psutil
import torch

from draftmark.core.errors import ConfigError
from draftmark.layers.decoder import DecoderLayer
from draftmark.models.stage import Stage
from draftmark.parallel.communicators import Communicators
from draftmark.parallel.lanes import Wire
from draftmark.parallel.wires import DelayedWire

_KINDS = ("delay", "drop", "exit", "hang", "nan")
_EXIT_STATUS = 9


@dataclass(slots=True, kw_only=True)
class InjectedFaults:
    """Those that are meant for this worker; none by default."""

    max_delay_s: float = 0.0
    at_step: dict[str, int] = field(default_factory=dict)
    layer: int = -1
    random: random.Random = field(default_factory=random.Random)
    is_serving: bool = False
    last_step: int = -1

    @classmethod
    def of(cls, wanted: Iterable[str], *, worker: int) -> InjectedFaults:
        """Raises `ConfigError` for what is none of the above."""
        faults = cls(random=random.Random(worker))
        for text in wanted:
            kind, _, value = text.partition("=")
            try:
                if kind == "delay":
                    faults.max_delay_s = float(value) / 1000
                elif kind in _KINDS:
                    who, step = map(int, value.split(":"))
                    if kind == "nan":
                        faults.layer = who
                    if who == worker or kind == "nan":
                        faults.at_step[kind] = step
                else:
                    raise ValueError(kind)
            except ValueError as error:
                raise ConfigError(
                    f"--inject {text}: expected delay=MS, nan=LAYER:STEP, or "
                    f"{'|'.join(_KINDS[1:-1])}=WORKER:STEP",
                    param="inject",
                ) from error
        return faults

    def delay(self, wire: Wire) -> Wire:
        """The wire to use instead of `wire`."""
        if not self.max_delay_s:
            return wire
        return DelayedWire(wire, seed=self.random.random(), max_delay_s=self.max_delay_s)

    def strike(
        self, step: int, *, communicators: Communicators | None, stages: Sequence[Stage]
    ) -> None:
        """Called at the head of every step; `stages` are the worker's."""
        if self.max_delay_s:
            time.sleep(self.random.uniform(0.0, self.max_delay_s))
        self.is_serving |= step <= self.last_step
        self.last_step = step
        due = [kind for kind, at in self.at_step.items() if step >= at]
        for kind in due if self.is_serving else []:
            del self.at_step[kind]
            if kind == "drop" and communicators is not None:
                communicators.drop()
                _shut_connections()
            elif kind == "nan":
                for stage in stages:
                    _poison(stage, self.layer)
            elif kind == "exit":
                os._exit(_EXIT_STATUS)
            elif kind == "hang":
                threading.Event().wait()


@torch.inference_mode()
def _poison(stage: Stage, layer: int) -> None:
    """What enters the layer's mixer is NaN from now on."""
    for number, block in stage.layers.items():
        if int(number) == layer:
            assert isinstance(block, DecoderLayer)
            block.mixer_norm.prepared.fill_(torch.nan)


def _shut_connections() -> None:
    """As a network does that goes away: aborting a group of gloo leaves its pairs connected."""
    for link in psutil.Process().net_connections("tcp"):
        if link.status == psutil.CONN_ESTABLISHED:
            ours = socket.socket(fileno=link.fd)
            ours.shutdown(socket.SHUT_RDWR)
            ours.detach()  # whose it is closes it
