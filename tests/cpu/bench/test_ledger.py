"""The ledger: what each kind of window may share with others, and what is refused with figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from draftmark.bench.ledger.audit import audit
from draftmark.bench.ledger.choose import Order
from draftmark.bench.ledger.corpus import Corpus
from draftmark.bench.ledger.entries import Use
from draftmark.bench.ledger.ledger import Ledger
from draftmark.bench.ledger.state import Status, summary
from draftmark.core.errors import ConfigError
from tests.fakes.bench_tokens import numbered


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add(numbered(1000))
    return ledger


def order(use: Use = Use.FRESH, *, prompts: int = 2, tokens: int = 100, **fields: object) -> Order:
    return Order(num_prompts=prompts, prompt_tokens=tokens, use=use, **fields)  # type: ignore[arg-type]


def reserve(ledger: Ledger, run_id: str, wanted: Order) -> tuple[int, int]:
    reservation = ledger.reserve(run_id, "books", wanted)
    return (reservation.start, reservation.end)


def test_fresh_windows_follow_one_another(ledger: Ledger) -> None:
    assert [reserve(ledger, f"r{n}", order()) for n in range(3)] == [
        (0, 200),
        (200, 400),
        (400, 600),
    ]
    assert ledger.state().corpus("books").num_left == 400
    assert audit(ledger) == []


def test_a_corpus_too_small_is_refused_with_figures(ledger: Ledger) -> None:
    reserve(ledger, "r0", order(prompts=9))
    message = (
        r"books is too small: 2 prompts of 100 are 200 tokens in a row, 100 of 1000 were never sent"
    )
    with pytest.raises(ConfigError, match=message):
        reserve(ledger, "r1", order())
    assert ledger.state().corpus("books").num_left == 100


def test_a_run_has_one_window(ledger: Ledger) -> None:
    reserve(ledger, "r0", order())
    with pytest.raises(ConfigError, match="run r0 has a window already"):
        reserve(ledger, "r0", order())


def test_a_window_is_given_back_only_when_nothing_was_sent(ledger: Ledger) -> None:
    first = ledger.reserve("r0", "books", order())
    with pytest.raises(ConfigError, match="17 bytes of run r0 were sent"):
        ledger.void(first.line_sha, bytes_sent=17, reason="server refused")
    ledger.void(first.line_sha, bytes_sent=0, reason="server refused")
    assert reserve(ledger, "r1", order()) == (0, 200)
    with pytest.raises(ConfigError, match="void already"):
        ledger.commit(first.line_sha)


def test_a_reservation_that_nobody_ended_stays_used(ledger: Ledger) -> None:
    """Its run may have died after it sent some of it."""
    reserve(ledger, "crashed", order())
    assert ledger.state().corpus("books").used() == [(0, 200)]


def test_commit_is_once(ledger: Ledger) -> None:
    first = ledger.reserve("r0", "books", order())
    ledger.commit(first.line_sha)
    assert ledger.state().window(first.line_sha).status is Status.COMMITTED
    with pytest.raises(ConfigError, match="committed already"):
        ledger.commit(first.line_sha)
    with pytest.raises(ConfigError, match="committed already"):
        ledger.void(first.line_sha, bytes_sent=0, reason="")
    with pytest.raises(ConfigError, match="no reservation abc"):
        ledger.commit("abc")


def test_paired_windows_are_once_a_start_and_the_same_for_all_starts(ledger: Ledger) -> None:
    def paired(run_id: str, start_id: str) -> tuple[int, int]:
        return reserve(ledger, run_id, order(Use.PAIRED, start_id=start_id, isolated=True))

    assert [paired("a0", "A"), paired("a1", "A")] == [(0, 200), (200, 400)]
    assert reserve(ledger, "other", order()) == (400, 600)
    assert [paired("b0", "B"), paired("b1", "B"), paired("b2", "B")] == [
        (0, 200),
        (200, 400),
        (600, 800),
    ]
    assert paired("a2", "A") == (600, 800)
    assert ledger.state().corpus("books").num_left == 200
    assert audit(ledger) == []


@pytest.mark.parametrize("fields", [{}, {"start_id": "A"}, {"isolated": True}])
def test_paired_windows_need_a_start_of_their_own(
    ledger: Ledger, fields: dict[str, object]
) -> None:
    with pytest.raises(ConfigError, match="needs the id of the server's start"):
        reserve(ledger, "r", order(Use.PAIRED, **fields))


def test_shifted_windows_burn_nothing_and_begin_nowhere_twice(ledger: Ledger) -> None:
    reserve(ledger, "r0", order(prompts=4))
    left = ledger.state().corpus("books").num_left
    spans = [reserve(ledger, f"w{n}", order(Use.SHIFTED)) for n in range(3)]
    assert spans == [(1, 201), (2, 202), (3, 203)]
    assert ledger.state().corpus("books").num_left == left
    assert reserve(ledger, "r1", order()) == (400, 600)
    assert audit(ledger) == []


def test_a_short_prompt_is_the_beginning_of_a_longer_one(ledger: Ledger) -> None:
    reserve(ledger, "r0", order(prompts=4, tokens=5))
    assert reserve(ledger, "w", order(Use.SHIFTED, prompts=1, tokens=15)) == (1, 16)


def test_there_is_nothing_to_shift_in_yet(ledger: Ledger) -> None:
    with pytest.raises(ConfigError, match=r"the longest such part has 0: take\s+random ids"):
        reserve(ledger, "w", order(Use.SHIFTED))


def test_an_imported_part_is_neither_fresh_nor_shifted(tmp_path: Path) -> None:
    """Of a part that was used elsewhere nobody knows where its prompts began."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add(numbered(1000), used_until=700, note="taken over")
    with pytest.raises(ConfigError, match="the longest such part has 0"):
        reserve(ledger, "w", order(Use.SHIFTED))
    assert reserve(ledger, "r0", order()) == (700, 900)


def test_reused_windows_are_what_the_caller_wants(ledger: Ledger) -> None:
    reserve(ledger, "r0", order())
    assert reserve(ledger, "r1", order(Use.REUSED, start=50)) == (50, 250)
    assert reserve(ledger, "r2", order()) == (250, 450)
    with pytest.raises(ConfigError, match=r"\[900, 1100\) is not inside its 1000 tokens"):
        reserve(ledger, "r3", order(Use.REUSED, start=900))
    with pytest.raises(ConfigError, match="belongs to use reused"):
        reserve(ledger, "r4", order(start=3))


def test_a_used_corpus_is_taken_over(tmp_path: Path) -> None:
    """The seed's figures: 21,235,008 of 21,296,780 used, 61,772 left."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    state = ledger.add(numbered(21_296_780), used_until=21_235_008, note="from the seed")
    assert state.num_left == 61_772
    assert state.runs_left(8192) == 7
    message = "32 prompts of 8192 are 262144 tokens in a row, 61772 of 21296780 were never sent"
    with pytest.raises(ConfigError, match=message):
        reserve(ledger, "r", order(prompts=32, tokens=8192))
    assert summary(state, run_tokens=262_144) == {
        "num_tokens": 21_296_780,
        "imported": 21_235_008,
        "left": 61_772,
        "largest_free": 61_772,
        "windows": {"reserved": 0, "committed": 0, "void": 0},
        "runs_left": 0,
    }


def test_more_of_a_corpus_may_turn_out_to_be_used(ledger: Ledger) -> None:
    assert ledger.import_used("books", used_until=300).num_left == 700
    with pytest.raises(ConfigError, match="300 tokens are used already"):
        ledger.import_used("books", used_until=300)
    with pytest.raises(ConfigError, match="1001 of them cannot have been used"):
        ledger.import_used("books", used_until=1001)


def test_text_that_repeats_itself_is_stepped_over(tmp_path: Path) -> None:
    """Both prompts would begin with the same 16 tokens at 0; a window a little later does not."""
    ids = np.arange(500, dtype=np.uint32)
    ids[100:116] = ids[0:16]
    corpus = numbered(500)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add(
        Corpus(
            name="books",
            tokenizer_sha256=corpus.tokenizer_sha256,
            documents=corpus.documents,
            ids=ids,
        )
    )
    assert reserve(ledger, "r0", order()) == (1, 201)


def test_a_corpus_that_only_repeats_itself_is_refused(tmp_path: Path) -> None:
    corpus = numbered(500)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add(
        Corpus(
            name="books",
            tokenizer_sha256=corpus.tokenizer_sha256,
            documents=corpus.documents,
            ids=np.full(500, 7, dtype=np.uint32),
        )
    )
    with pytest.raises(ConfigError, match="the text repeats itself"):
        reserve(ledger, "r0", order())


def test_the_same_text_is_not_added_twice(ledger: Ledger) -> None:
    with pytest.raises(ConfigError, match="has a corpus books already"):
        ledger.add(numbered(1000))
    again = numbered(1000)
    renamed = Corpus(
        name="more",
        tokenizer_sha256=again.tokenizer_sha256,
        documents=again.documents,
        ids=again.ids,
    )
    with pytest.raises(ConfigError, match=r"books\.txt is in corpus books already"):
        ledger.add(renamed)
    ledger.add(numbered(500, name="other"))
    assert set(ledger.state().corpora) == {"books", "other"}


def test_an_unknown_corpus_and_a_missing_ledger_are_named(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no corpus novels; it has books"):
        ledger.reserve("r", "novels", order())
    nowhere = Ledger(tmp_path / "none.jsonl")
    with pytest.raises(ConfigError, match="begin one with `ledger add`"):
        nowhere.state()
    with pytest.raises(ConfigError, match="begin one with `ledger add`"):
        nowhere.reserve("r", "books", order())
    assert not nowhere.path.exists()


def test_a_reservation_goes_into_the_result_as_it_is_in_the_ledger(ledger: Ledger) -> None:
    use = ledger.reserve("r0", "books", order()).in_result()
    assert (use.corpus, use.window, use.klass) == ("books", (0, 200), "fresh")
    assert ledger.state().window(use.line_sha).entry.run_id == "r0"
