"""After any sequence of operations: used + free = all, and the audit finds nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.bench.ledger.audit import audit
from draftmark.bench.ledger.choose import Order
from draftmark.bench.ledger.entries import Use
from draftmark.bench.ledger.ledger import Ledger
from draftmark.bench.ledger.state import Status
from draftmark.core.errors import ConfigError
from tests.fakes.bench_tokens import numbered

SIZE = 600
ORDERS = st.builds(
    lambda use, prompts, tokens, start_id: Order(
        num_prompts=prompts,
        prompt_tokens=tokens,
        use=use,
        start_id=start_id,
        isolated=True,
        start=None,
    ),
    st.sampled_from([Use.FRESH, Use.PAIRED, Use.SHIFTED]),
    st.integers(1, 4),
    st.sampled_from([5, 20, 50]),
    st.sampled_from(["A", "B"]),
)
OPERATIONS = st.lists(
    st.one_of(
        ORDERS,
        st.tuples(st.sampled_from(["commit", "void"]), st.integers(0, 30)),
    ),
    max_size=12,
)


def end(ledger: Ledger, how: str, line_sha: str) -> None:
    """Commit or void, where the window is still open."""
    if ledger.state().window(line_sha).status is not Status.RESERVED:
        return
    if how == "commit":
        ledger.commit(line_sha)
    else:
        ledger.void(line_sha, bytes_sent=0, reason="nothing sent")


@settings(max_examples=40, deadline=None)
@given(operations=OPERATIONS, used_until=st.sampled_from([0, 130]))
def test_windows_of_any_sequence_are_sound(
    operations: list[Order | tuple[str, int]], used_until: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "ledger.jsonl")
        ledger.add(numbered(SIZE), used_until=used_until)
        reserved: list[str] = []
        for number, operation in enumerate(operations):
            if isinstance(operation, tuple):
                how, index = operation
                if index < len(reserved):
                    end(ledger, how, reserved[index])
                continue
            before = ledger.state()
            try:
                reserved.append(ledger.reserve(f"r{number}", "books", operation).line_sha)
            except ConfigError as error:
                assert "books" in error.message
                assert ledger.state() == before
        corpus = ledger.state().corpus("books")
        assert audit(ledger) == []
        assert corpus.num_left + sum(b - a for a, b in corpus.used()) == SIZE
        fresh = [w for w in corpus.live if w.entry.use is Use.FRESH]
        assert all(window.entry.start >= used_until for window in fresh)
