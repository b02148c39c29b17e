"""The peer wire: one GPU copies into the receive buffers of another one of the same host.

Nothing is posted and nothing spins on a multiprocessor. The sender's stream waits until the buffer
it will fill is free, copies, and then raises a counter; the receiver's stream waits for that
counter, and raises another one once the buffer was consumed. Both waits are the stream's own
(`cuStreamWaitValue32`), which takes no kernel.

    sender (its lane stream)                     receiver (its compute stream)
    wait freed >= k + 1 - depth                  wait arrived >= k + 1
    copy message k into buffer k % depth         ... consume ...
    arrived := k + 1                             freed := k + 1

The counters lie in a page of host memory that both processes map: the driver refuses such writes to
the memory of a peer. A write of a counter is preceded by a fence of the whole system, so that
whoever sees the counter sees the copy. The receive buffers are mapped by the handles that torch's
own sharing of CUDA tensors uses. All this is exchanged through the store at start, once.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import torch
from torch import Tensor

from draftmark.core.errors import ConfigError
from draftmark.parallel.lanes import Parcel, Ticket, plain_buffers

_PORTABLE, _MAPPED = 1, 2  # CU_MEMHOSTREGISTER_PORTABLE, _DEVICEMAP
_CACHE_LINE = 64
_WORD = 2**32 - 1
_GREATER_OR_EQUAL = 0  # CU_STREAM_WAIT_VALUE_GEQ
_WITH_FENCE = 0  # CU_STREAM_WRITE_VALUE_DEFAULT


class KeyStore(Protocol):
    """What we need of torch's store."""

    def set(self, key: str, value: Any) -> None: ...

    def get(self, key: str) -> bytes: ...


class _Event:
    """A ticket: the current stream waits for what was enqueued."""

    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    def wait(self) -> None:
        self._event.wait()


class _Nothing:
    def wait(self) -> None:
        """The current stream was told to wait when this was made."""


class PeerWire:
    """One end; the other is made by another process, of the same lane, with the same `store`.

    Raises `ConfigError` when the two GPUs cannot reach each other's memory.
    """

    def __init__(
        self, name: str, *, store: KeyStore, is_source: bool, device: torch.device
    ) -> None:
        self._name = name
        self._store = store
        self._is_source = is_source
        self._device = device
        self._driver = _Driver()
        self._stream = torch.cuda.Stream(device)
        self._count = 0
        self._counters = self._share_counters()
        self._remote: list[Tensor] = []
        self._events: list[torch.cuda.Event] = []

    def buffers(self, count: int, num_bytes: int, device: torch.device) -> list[Tensor]:
        """The target shares its buffers, the source maps them and has others of its own."""
        buffers = plain_buffers(count, num_bytes, device)
        torch.cuda.synchronize(self._device)
        self._events = [torch.cuda.Event() for _ in buffers]
        key = f"{self._name} buffers"
        if self._is_source:
            self._remote = _import(self._store.get(key), self._device, self._name)
        else:
            self._store.set(key, _export(self._device, buffers))
        return buffers

    def send(self, parcel: Parcel) -> Ticket:
        depth = len(self._remote)
        index = self._count % depth
        stream, event, counters = self._stream, self._events[index], self._counters
        stream.wait_stream(torch.cuda.current_stream(self._device))
        if self._count >= depth:
            self._driver.wait(stream, counters.freed, self._count + 1 - depth)
        with torch.cuda.stream(stream):
            self._remote[index][: len(parcel.payload)].copy_(parcel.payload, non_blocking=True)
        self._count += 1
        self._driver.write(stream, counters.arrived, self._count)
        event.record(stream)
        return _Event(event)

    def receive(self, parcel: Parcel) -> Ticket:
        self._count += 1
        stream = torch.cuda.current_stream(self._device)
        self._driver.wait(stream, self._counters.arrived, self._count)
        return _Nothing()

    def released(self, parcel: Parcel) -> None:
        stream = torch.cuda.current_stream(self._device)
        self._driver.write(stream, self._counters.freed, self._count)

    def close(self) -> None:
        torch.cuda.synchronize(self._device)
        self._remote = []
        self._counters.close()

    def _share_counters(self) -> _Counters:
        """A page without a name: the target opens the source's by its descriptor."""
        key = f"{self._name} counters"
        if not self._is_source:
            return _Counters(os.open(self._store.get(key).decode(), os.O_RDWR), self._driver)
        fd = os.memfd_create("draftmark-lane")
        os.ftruncate(fd, mmap.PAGESIZE)
        counters = _Counters(fd, self._driver)
        self._store.set(key, f"/proc/{os.getpid()}/fd/{fd}")
        return counters


class _Counters:
    """Two counters in memory that the host and both GPUs see; addresses are the device's."""

    def __init__(self, fd: int, driver: _Driver) -> None:
        self._fd = fd
        self._map = mmap.mmap(fd, mmap.PAGESIZE)
        self._page: ctypes.Array[ctypes.c_char] | None = (
            ctypes.c_char * mmap.PAGESIZE
        ).from_buffer(self._map)
        self._driver = driver
        self._host = ctypes.addressof(self._page)
        self.arrived = driver.register(self._host, mmap.PAGESIZE)
        self.freed = self.arrived + _CACHE_LINE

    def close(self) -> None:
        self._driver.unregister(self._host)
        self._page = None
        self._map.close()
        os.close(self._fd)


class _Driver:
    """Calls of the CUDA driver that torch does not offer. Addresses are plain numbers."""

    def __init__(self) -> None:
        library = ctypes.CDLL("libcuda.so.1")
        self._wait = library.cuStreamWaitValue32_v2
        self._write = library.cuStreamWriteValue32_v2
        for call in (self._wait, self._write):
            call.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint)
        self._register = library.cuMemHostRegister_v2
        self._register.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint)
        self._device_pointer = library.cuMemHostGetDevicePointer_v2
        self._device_pointer.argtypes = (
            ctypes.POINTER(ctypes.c_uint64),
            ctypes.c_void_p,
            ctypes.c_uint,
        )
        self._unregister = library.cuMemHostUnregister
        self._unregister.argtypes = (ctypes.c_void_p,)

    def register(self, address: int, num_bytes: int) -> int:
        """Make host memory visible to the current device; its address there."""
        _check(self._register(address, num_bytes, _MAPPED | _PORTABLE))
        found = ctypes.c_uint64()
        _check(self._device_pointer(ctypes.byref(found), address, 0))
        return found.value

    def unregister(self, address: int) -> None:
        _check(self._unregister(address))

    def wait(self, stream: torch.cuda.Stream, counter: int, value: int) -> None:
        """`stream` goes on once the counter is at least `value` (counted around 2^32)."""
        _check(self._wait(stream.cuda_stream, counter, value & _WORD, _GREATER_OR_EQUAL))

    def write(self, stream: torch.cuda.Stream, counter: int, value: int) -> None:
        """The counter becomes `value` after all that `stream` did so far."""
        _check(self._write(stream.cuda_stream, counter, value & _WORD, _WITH_FENCE))


def _check(status: int) -> None:
    if status != 0:
        raise RuntimeError(
            f"a stream operation on a lane's counter failed with CUDA error {status}"
        )


def _export(device: torch.device, tensors: Sequence[Tensor]) -> bytes:
    """Handles of tensors, each of a storage of its own, for another process of this host."""
    handles = [tensor.untyped_storage()._share_cuda_() for tensor in tensors]
    return msgspec.msgpack.encode([device.index, handles])


def _import(data: bytes, device: torch.device, name: str) -> list[Tensor]:
    """The tensors as bytes, mapped here."""
    index, handles = msgspec.msgpack.decode(data)
    if index != device.index and not torch.cuda.can_device_access_peer(device, index):
        raise ConfigError(
            f"--lanes peer: GPU {device.index} cannot reach the memory of GPU {index} ({name}); "
            "use --lanes nccl",
            param="lanes",
        )
    return [_mapped(handle) for handle in handles]


def _mapped(handle: Sequence[Any]) -> Tensor:
    storage = torch.UntypedStorage._new_shared_cuda(*handle)
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
