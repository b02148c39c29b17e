"""One lane by hand: what each end sees, and what is said when the ends disagree or one is gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from draftmark.core.topology import LaneKind, LaneName
from draftmark.parallel.lanes import (
    POISON_WORD,
    Label,
    Lane,
    LaneBroken,
    LaneFault,
    LaneFormat,
    Parcel,
    Shape,
    Ticket,
    Wire,
    make_lane,
    plain_buffers,
)
from draftmark.parallel.strict import StrictWire

CPU = torch.device("cpu")
NAME = LaneName(kind=LaneKind.FORWARD, source=1, target=2, tp_rank=0)
FORMAT = LaneFormat(
    name=NAME,
    number=5,
    depth=3,
    max_words=6,
    max_tokens=4,
    hidden_size=3,
    dtype=torch.bfloat16,
)
SHAPE = Shape(4, 2)


def label(step: int) -> Label:
    return Label(step, step % 2, 7000 + step)


def make(wire: Wire | None, *, checks: bool = True, format: LaneFormat = FORMAT) -> Lane:
    return make_lane(format, device=CPU, has_source=True, has_target=True, wire=wire, checks=checks)


@contextmanager
def strict(**options: float) -> Iterator[StrictWire]:
    wire = StrictWire(seed=1, **{"max_delay_s": 0.001, "patience_s": 5.0, **options})
    yield wire
    wire.close()


def write(lane: Lane, step: int, *, shape: Shape = SHAPE, of: Label | None = None) -> Parcel:
    assert lane.outlet is not None
    parcel = lane.outlet.open(shape)
    parcel.label.copy_(torch.tensor(of or label(step)))
    parcel.words.copy_(torch.arange(shape.words) + 10 * step)
    parcel.hidden.fill_(step)
    lane.outlet.send()
    return parcel


def read(lane: Lane, step: int, *, shape: Shape = SHAPE) -> Parcel:
    assert lane.inlet is not None
    parcel = lane.inlet.receive(shape, label(step))
    assert parcel.words.tolist() == [10 * step + i for i in range(shape.words)]
    assert (parcel.hidden == step).all() and parcel.hidden.shape == (shape.tokens, 3)
    return parcel


@pytest.fixture(params=["local", "strict"])
def lane(request: pytest.FixtureRequest) -> Iterator[Lane]:
    """Both ends here."""
    if request.param == "local":
        yield make(None)
        return
    with strict() as wire:
        yield make(wire)


# -- messages -------------------------------------------------------------------------------------


def test_messages_of_any_shape_come_in_order(lane: Lane) -> None:
    assert lane.inlet is not None
    shapes = [SHAPE, Shape(0, 0), Shape(6, 4), Shape(1, 0), Shape(0, 1), SHAPE, Shape(6, 4)]
    write(lane, 0, shape=shapes[0])
    for step, shape in enumerate(shapes):
        if step + 1 < len(shapes):
            write(lane, step + 1, shape=shapes[step + 1])
        read(lane, step, shape=shape)
        lane.inlet.release()


def test_both_ends_have_one_format(lane: Lane) -> None:
    assert lane.inlet is not None and lane.outlet is not None
    assert lane.inlet.format is lane.outlet.format is lane.format


def test_a_size_is_words_and_hidden_states() -> None:
    assert FORMAT.num_bytes(Shape(0)) == 8 * 4
    assert FORMAT.num_bytes(SHAPE) == 8 * (4 + 4) + 2 * 3 * 2
    assert FORMAT.max_bytes == 8 * (4 + 6) + 4 * 3 * 2


@pytest.mark.parametrize("shape", [Shape(7, 0), Shape(0, 5)])
def test_more_than_the_lane_was_made_for_is_refused(lane: Lane, shape: Shape) -> None:
    assert lane.outlet is not None
    with pytest.raises(LaneFault, match=r"forward lane 1>2: Shape.* more than"):
        lane.outlet.open(shape)


def test_a_lane_without_a_wire_has_both_ends_here() -> None:
    with pytest.raises(AssertionError, match="forward lane 1>2 needs a wire"):
        make_lane(FORMAT, device=CPU, has_source=True, has_target=False, wire=None, checks=True)


@pytest.mark.parametrize(("has_source", "has_target"), [(True, False), (False, True)])
def test_an_end_alone(has_source: bool, has_target: bool) -> None:
    with strict() as wire:
        made = make_lane(
            FORMAT,
            device=CPU,
            has_source=has_source,
            has_target=has_target,
            wire=wire,
            checks=True,
        )
    assert (made.outlet is not None, made.inlet is not None) == (has_source, has_target)


# -- disagreement ---------------------------------------------------------------------------------


def test_a_wrong_label_names_both_ends_and_both_labels(lane: Lane) -> None:
    assert lane.inlet is not None
    write(lane, 8, of=Label(8, 1, 0xABC))
    with pytest.raises(LaneFault) as caught:
        lane.inlet.receive(SHAPE, Label(9, 0, 0xDEF))
    assert str(caught.value) == (
        "forward lane 1>2: stage 1 sent step 8, cohort 1, generation 0xabc, lane 5; "
        "stage 2 expected step 9, cohort 0, generation 0xdef, lane 5"
    )


@pytest.mark.parametrize("wrong", [Label(3, 1, 7003), Label(4, 1, 7004), Label(4, 0, 7003)])
def test_every_word_of_a_label_counts(lane: Lane, wrong: Label) -> None:
    assert lane.inlet is not None
    write(lane, 4, of=wrong)
    with pytest.raises(LaneFault, match="expected step 4, cohort 0"):
        lane.inlet.receive(SHAPE, label(4))


def test_messages_of_another_lane_are_seen() -> None:
    """Both ends have a format that says another number."""
    with strict() as wire:
        ours = make(wire)
        theirs = make(wire, format=LaneFormat(**{**_fields(FORMAT), "number": 6}))
        write(theirs, 1)
        with pytest.raises(LaneFault, match=r"lane 6; stage 2 expected .* lane 5"):
            read(ours, 1)


def _fields(format: LaneFormat) -> dict[str, object]:
    return {field: getattr(format, field) for field in format.__dataclass_fields__}


def test_without_checks_labels_are_not_read() -> None:
    unchecked = make(None, checks=False)
    write(unchecked, 2, of=Label(99, 1, 5))
    read(unchecked, 2)


def test_another_shape_is_named(lane: Lane) -> None:
    assert lane.inlet is not None
    write(lane, 3)
    with pytest.raises(LaneFault, match="forward lane 1>2") as caught:
        lane.inlet.receive(Shape(3, 2), label(3))
    assert "sent" in str(caught.value) and "expected" in str(caught.value)


# -- order of calls -------------------------------------------------------------------------------


def test_a_full_local_ring_is_a_fault() -> None:
    lane = make(None)
    for step in range(3):
        write(lane, step)
    with pytest.raises(LaneFault, match="forward lane 1>2 is full: 3 messages wait"):
        write(lane, 3)
    assert lane.inlet is not None
    read(lane, 0)
    with pytest.raises(LaneFault, match="is full"):  # the reader still holds it
        write(lane, 3)
    lane.inlet.release()
    write(lane, 3)


def test_an_empty_local_lane_is_a_fault() -> None:
    with pytest.raises(LaneFault, match="forward lane 1>2: nothing was sent, step 4 is expected"):
        read(make(None), 4)


def test_a_full_wired_ring_waits_for_the_reader() -> None:
    with strict() as wire:
        lane = make(wire)
        for step in range(3):
            write(lane, step)
        writer = threading.Thread(target=write, args=(lane, 3))
        writer.start()
        time.sleep(0.05)
        assert writer.is_alive()
        assert lane.inlet is not None
        for step in range(4):
            read(lane, step)
            lane.inlet.release()
        writer.join(5)
        assert not writer.is_alive()


def test_send_and_release_come_after_open_and_receive(lane: Lane) -> None:
    assert lane.inlet is not None and lane.outlet is not None
    with pytest.raises(AssertionError, match="open comes first"):
        lane.outlet.send()
    with pytest.raises(AssertionError, match="receive comes first"):
        lane.inlet.release()


def test_no_buffer_is_made_after_the_start(lane: Lane) -> None:
    """Both ends go round their rings."""
    assert lane.inlet is not None
    sent, received = set(), set()
    for step in range(9):
        sent.add(write(lane, step).payload.data_ptr())
        received.add(read(lane, step).payload.data_ptr())
        lane.inlet.release()
    assert len(sent) == len(received) == 3


# -- the strict wire ------------------------------------------------------------------------------


def is_poisoned(parcel: Parcel) -> bool:
    return bool(
        (parcel.header == POISON_WORD).all()
        and (parcel.words == POISON_WORD).all()
        and parcel.hidden.isnan().all()
    )


def test_what_has_not_come_is_poison() -> None:
    with strict() as wire:
        lane = make(wire)
        assert lane.inlet is not None
        buffer = lane.inlet._ring[0].parcel(SHAPE)  # type: ignore[attr-defined]
        buffer.words.fill_(1)
        ticket = wire.receive(buffer)
        assert is_poisoned(buffer)
        write(lane, 0)
        ticket.wait()
        assert not is_poisoned(buffer) and (buffer.hidden == 0).all()


def test_what_was_sent_and_what_was_consumed_is_poison() -> None:
    with strict() as wire:
        lane = make(wire)
        assert lane.inlet is not None
        sent = write(lane, 1)
        time.sleep(0.02)
        assert not is_poisoned(sent)  # nobody asked for it yet
        received = read(lane, 1)
        assert is_poisoned(sent)
        lane.inlet.release()
        assert is_poisoned(received)


def test_the_buffer_is_read_when_the_transfer_runs() -> None:
    """What the sender writes after `send` is what comes."""
    with strict() as wire:
        lane = make(wire)
        write(lane, 1).hidden.fill_(77)
        assert lane.inlet is not None
        assert (lane.inlet.receive(SHAPE, label(1)).hidden == 77).all()


class _Counting:
    """Counts what was asked of a wire that never moves anything."""

    def __init__(self) -> None:
        self.sends = self.receives = 0

    def buffers(self, count: int, num_bytes: int, device: torch.device) -> list[Tensor]:
        return plain_buffers(count, num_bytes, device)

    def send(self, parcel: Parcel) -> Ticket:
        self.sends += 1
        return _Done()

    def receive(self, parcel: Parcel) -> Ticket:
        self.receives += 1
        return _Done()

    def released(self, parcel: Parcel) -> None:
        pass

    def close(self) -> None:
        pass


class _Done:
    def wait(self) -> None:
        pass


def test_nothing_is_posted_early() -> None:
    """An idle lane waits for nothing, so that no time limit can strike it."""
    wire = _Counting()
    lane = make(wire, checks=False)
    assert lane.inlet is not None and lane.outlet is not None
    assert (wire.sends, wire.receives) == (0, 0)
    lane.outlet.open(SHAPE)
    assert wire.sends == 0
    lane.outlet.send()
    for count in range(1, 5):
        lane.inlet.receive(SHAPE, label(count))
        assert (wire.sends, wire.receives) == (1, count)
        lane.inlet.release()
        assert wire.receives == count


# -- a lost peer ----------------------------------------------------------------------------------


class _Broken(_Counting):
    """Fails when asked, or when waited for, as torch does."""

    def __init__(self, *, at_once: bool) -> None:
        super().__init__()
        self._at_once = at_once

    def send(self, parcel: Parcel) -> Ticket:
        return self._fail()

    def receive(self, parcel: Parcel) -> Ticket:
        return self._fail()

    def _fail(self) -> Ticket:
        if self._at_once:
            self.wait()
        return self

    def wait(self) -> None:
        raise RuntimeError("Connection closed by peer [127.0.0.1]:1\nsecond line")


@pytest.mark.parametrize("at_once", [True, False])
def test_a_broken_receive_names_lane_and_step(at_once: bool) -> None:
    lane = make(_Broken(at_once=at_once))
    assert lane.inlet is not None
    with pytest.raises(LaneBroken) as caught:
        lane.inlet.receive(SHAPE, Label(12, 2, 5))
    assert caught.value.message == (
        "forward lane 1>2 broke at step 12, cohort 2: Connection closed by peer [127.0.0.1]:1"
    )


@pytest.mark.parametrize("at_once", [True, False])
def test_a_broken_send_names_lane_and_step(at_once: bool) -> None:
    """Of the message that was lost; who sends learns of it when it needs the buffer again."""
    lane = make(_Broken(at_once=at_once))
    with pytest.raises(LaneBroken, match=r"forward lane 1>2 broke at step 3, cohort 1: Connection"):
        for step in range(3, 7):
            write(lane, step)


def test_nothing_comes_in_time() -> None:
    with strict(patience_s=0.05) as wire, pytest.raises(LaneBroken, match=r"at step 6.* 0.05 s"):
        read(make(wire), 6)


def test_a_closed_wire_lets_nobody_wait() -> None:
    with strict(patience_s=60.0) as wire:
        lane = make(wire)
        errors: list[Exception] = []

        def wait() -> None:
            try:
                read(lane, 6)
            except LaneBroken as error:
                errors.append(error)

        reader = threading.Thread(target=wait)
        reader.start()
        time.sleep(0.05)
        wire.close()
        reader.join(5)
        assert not reader.is_alive() and len(errors) == 1
        with pytest.raises(LaneBroken, match="at step 7"):
            read(lane, 7)
