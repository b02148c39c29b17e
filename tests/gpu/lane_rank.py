"""One of two processes at the ends of a lane: `python -m ... LANES WORKER PORT_FILE FAULT`.

The writer fills a message with its round, at random moments of its stream; the reader checks on
the device that all of it is of that round, and fills what it released with NaN. Spin kernels of
random length stand wherever two streams could lose one another. Prints the number of wrong values.
"""

from __future__ import annotations

import random
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor

from draftmark.core.topology import LaneKind, Topology
from draftmark.parallel.communicators import Communicators, find_store, open_store
from draftmark.parallel.lanes import Label, LaneFormat, Parcel, Shape, make_lane

ROUNDS = 1000
TIMEOUT = timedelta(seconds=60)
SPIN_CYCLES = 200_000  # about 0.1 ms
# Writer and reader take turns at being the slower one, for so many rounds.
PHASE, SLOWER = 50, 8
TOKENS, HIDDEN, WORDS = 64, 2048, 128


def spin(rng: random.Random, *, is_slow: bool) -> None:
    if rng.random() < 0.5:
        torch.cuda._sleep(rng.randrange(SPIN_CYCLES) * (SLOWER if is_slow else 1))


def plant(fault: str, wire: object, worker: int) -> None:
    """Leave out one event, at the end that has it."""
    if worker != {"written": 0, "sent": 0, "arrived": 1, "released": 1}.get(fault):
        return
    stream = wire._stream
    if fault == "written":  # the transfer does not wait for the writer
        stream.wait_stream = lambda other: None
    elif fault == "released" and hasattr(wire, "_released"):
        # NCCL: the transfer does not wait for the reader of the buffer it fills.
        wire.released = lambda parcel: None
    elif fault == "released":  # peer: the reader says that it is done before it has begun
        receive, released = wire.receive, wire.released

        def too_soon(parcel: Parcel) -> object:
            ticket = receive(parcel)
            released(parcel)
            return ticket

        wire.receive, wire.released = too_soon, lambda parcel: None
    elif fault == "arrived" and hasattr(wire, "_driver"):
        wire._driver.wait = lambda stream, counter, value: None
    elif fault == "arrived":  # NCCL: the reader does not wait for the transfer
        receive = wire.receive

        class Ticket:
            def wait(self) -> None:
                pass

        def at_once(parcel: Parcel) -> Ticket:
            receive(parcel)
            return Ticket()

        wire.receive = at_once
    elif fault == "sent":  # the writer does not wait for the transfer before
        send = wire.send

        class Done:
            def wait(self) -> None:
                pass

        def sent(parcel: Parcel) -> Done:
            send(parcel)
            return Done()

        wire.send = sent


def wrong(values: Tensor, expected: int) -> Tensor:
    """NaN is wrong, too."""
    return (values != expected).sum()


def main() -> None:
    lanes, worker, port_file, fault = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    device = torch.device("cuda", worker)
    torch.cuda.set_device(device)
    topology = Topology(stages=(1, 1), cohorts=1, lanes=lanes)
    if worker == 0:
        store = open_store("127.0.0.1", 0, timeout=TIMEOUT)
        port_file.with_suffix(".partial").write_text(str(store.port))
        port_file.with_suffix(".partial").rename(port_file)
    else:
        while not port_file.exists():
            time.sleep(0.05)
        store = find_store("127.0.0.1", int(port_file.read_text()), timeout=TIMEOUT)
    joined = Communicators(
        topology, worker=worker, store=store, host="127.0.0.1", timeout=TIMEOUT, device=device
    )
    number, name = next(
        (i, lane) for i, lane in enumerate(topology.lane_names()) if lane.kind is LaneKind.FORWARD
    )
    format = LaneFormat(
        name=name,
        number=number,
        depth=topology.lane_depth,
        max_words=WORDS,
        max_tokens=TOKENS,
        hidden_size=HIDDEN,
        dtype=torch.float32,
    )
    wire = joined.wire(name)
    lane = make_lane(
        format,
        device=device,
        has_source=worker == 0,
        has_target=worker == 1,
        wire=wire,
        checks=False,
    )
    plant(fault, wire, worker)
    rng = random.Random(worker)
    shape = Shape(WORDS, TOKENS)
    bad = torch.zeros((), dtype=torch.int64, device=device)
    with torch.inference_mode():
        for step in range(ROUNDS):
            if worker == 0:
                write(lane.outlet, shape, step, rng)
            else:
                bad += read(lane.inlet, shape, step, rng)
    torch.cuda.synchronize()
    print(int(bad), flush=True)
    wire.close()
    # The other end may still read what is mapped from here.
    store.set(f"done {worker}", "1")
    store.wait([f"done {1 - worker}"], TIMEOUT)
    joined.close()


def write(outlet: object, shape: Shape, step: int, rng: random.Random) -> None:
    is_slow = step // PHASE % 2 == 0
    parcel = outlet.open(shape)
    spin(rng, is_slow=is_slow)
    parcel.label.fill_(step)
    parcel.words.fill_(step)
    spin(rng, is_slow=is_slow)
    parcel.hidden.fill_(step)
    outlet.send()


def read(inlet: object, shape: Shape, step: int, rng: random.Random) -> Tensor:
    is_slow = step // PHASE % 2 == 1
    parcel = inlet.receive(shape, Label(step, 0, 0))
    spin(rng, is_slow=is_slow)
    found = wrong(parcel.label, step) + wrong(parcel.words, step)
    spin(rng, is_slow=is_slow)
    found += wrong(parcel.hidden, step)
    parcel.poison()
    inlet.release()
    return found


if __name__ == "__main__":
    main()
