"""A child process ends when its parent does, however the parent ended.

The parent keeps the only other end of a pipe (or socket pair); the kernel closes it when the
parent is gone, and the child reads end of file. A polling `getppid` would be late and would spin.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

PARENT_GONE_STATUS = 70


def watch_parent(fd: int, *, cleanup: Callable[[], None] | None = None) -> threading.Thread:
    """Start a daemon thread that ends this process at once when `fd` reads end of file.

    `cleanup` runs first, in that thread, while the main thread may be anywhere: it may remove
    files and kill processes, and must not touch what the main thread owns.
    """
    os.set_inheritable(fd, False)
    thread = threading.Thread(
        target=_wait_then_exit, args=(fd, cleanup), name="parent-watch", daemon=True
    )
    thread.start()
    return thread


def _wait_then_exit(fd: int, cleanup: Callable[[], None] | None) -> None:
    while os.read(fd, 1):
        pass
    try:
        if cleanup is not None:
            cleanup()
    finally:
        os._exit(PARENT_GONE_STATUS)
