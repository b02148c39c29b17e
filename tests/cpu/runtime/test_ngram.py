"""Drafts that are looked up in the sequence itself: what is proposed, and that no token changes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import torch

from draftmark.core.config import Config
from draftmark.core.request import Request
from draftmark.core.resolve import to_dict
from draftmark.core.start import LoadWeights, WorkerInit
from draftmark.core.topology import Topology
from draftmark.kernels import sample as sampling
from draftmark.runtime import ngram
from draftmark.runtime.drafting import Drafting, Seat
from draftmark.runtime.ngram import MAX_MATCH, MIN_MATCH, NgramDrafter, propose
from draftmark.runtime.rank import Rank
from draftmark.runtime.relay import PACKED_DONE, PACKED_DRAFTS, PACKED_LENGTH, PACKED_TOKEN
from tests.cpu.runtime.harness import (
    MAX_CONTEXT,
    VOCAB,
    Loop,
    make_request,
    make_run,
    make_stages,
    random_request,
)
from tests.cpu.runtime.model_dir import write_tiny_llama


def look_up(tokens: list[int], k: int) -> list[int]:
    """The drafts after `tokens`, by trying every place; none without a match."""
    for size in range(MAX_MATCH, MIN_MATCH - 1, -1):
        if size >= len(tokens):
            continue
        for end in range(len(tokens) - 1, size - 1, -1):  # the latest first
            if tokens[end - size : end] == tokens[-size:]:
                known = list(tokens)
                for place in range(k):
                    known.append(known[end + place])
                return known[len(tokens) :]
    return []


# -- what is proposed ------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 200, 1 << 19])
def test_the_proposal_is_that_of_plain_python(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stale ids behind the end change nothing, nor does the number of rows at a time."""
    monkeypatch.setattr(ngram, "CHUNK_ELEMENTS", chunk)
    rng = random.Random(5)
    num_found = num_missed = 0
    for _ in range(60):
        alphabet, k, context = rng.choice([2, 4, 12, 60]), rng.randint(1, 8), 64
        history = torch.tensor(
            [[rng.randrange(alphabet) for _ in range(context)] for _ in range(9)]
        )
        slots = torch.tensor(rng.sample(range(9), 6))
        length = torch.tensor([rng.choice([0, 1, 2, 3, 4, 9, 33, context - 1]) for _ in slots])
        drafts, found = propose(
            history.to(torch.int32),
            slots=slots,
            length=length,
            columns=int(length.max()) + rng.choice([1, 5, 80]),
            k=k,
        )
        for row, (slot, last) in enumerate(zip(slots, length, strict=True)):
            expected = look_up(history[slot, : last + 1].tolist(), k)
            assert found[row].item() == bool(expected)
            assert not expected or drafts[row].tolist() == expected
            assert all(0 <= token < alphabet for token in drafts[row].tolist())
            num_found, num_missed = num_found + bool(expected), num_missed + (not expected)
    assert num_found > 100 and num_missed > 50


@pytest.mark.parametrize(
    ("tokens", "drafts"),
    [
        ([1, 2, 3, 4, 9, 1, 2, 3, 4], [9, 1, 2]),  # what followed
        ([1, 2, 3, 7, 5, 3, 8, 2, 3], [7, 5, 3]),  # the longest match, though 3 came later too
        ([1, 2, 7, 7, 1, 2, 8, 8, 1, 2], [8, 8, 1]),  # the latest of two
        ([5, 6, 6], [6, 6, 6]),  # a match so near is a loop
        ([5, 6, 7, 6, 7], [6, 7, 6]),
        ([1, 2, 3], []),
        ([1], []),
    ],
)
def test_which_match_wins(tokens: list[int], drafts: list[int]) -> None:
    assert look_up(tokens, 3) == drafts
    found, has_match = propose(
        torch.tensor([tokens], dtype=torch.int32),
        slots=torch.tensor([0]),
        length=torch.tensor([len(tokens) - 1]),
        columns=len(tokens),
        k=3,
    )
    assert (found[0].tolist() if has_match[0] else []) == drafts


# -- what the tokens are ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Proposal:
    request: int
    length: int  # the index of the pending token
    drafts: list[int]


class Watched:
    """An `NgramDrafter` that keeps what it proposed."""

    def __init__(self, seat: Seat, proposals: list[Proposal]) -> None:
        self._drafter = NgramDrafter(seat)
        self._proposals = proposals
        self._requests: dict[int, int] = {}

    def draft(self, step: Drafting) -> None:
        self._requests |= {admit.slot: admit.request for admit in step.plan.admits}
        self._drafter.draft(step)
        if step.packed is None or step.plan.draft_k == 0:
            return
        for row, words in zip(step.plan.sampling, step.packed.tolist(), strict=True):
            drafts = words[PACKED_TOKEN + 1 : PACKED_TOKEN + 1 + words[PACKED_DRAFTS]]
            assert not (words[PACKED_DONE] and drafts)
            if not words[PACKED_DONE]:
                request = self._requests[row.slot]
                self._proposals.append(Proposal(request, words[PACKED_LENGTH], drafts))


def play(
    family: str, stages: tuple[int, ...], seed: int, *, k: int, num_requests: int = 10
) -> Loop:
    """Random requests, most with prompts that repeat themselves, in pools that are too small. Every
    token must be that of plain decoding, and every draft the one that `look_up` gives, however its
    history came to the device. Snapshots of a hybrid need longer prompts."""
    rng, is_hybrid = random.Random(seed), family == "hybrid"
    sizes = {
        "num_pages": rng.choice([16, 20] if is_hybrid else [9, 11, 14]),
        "num_slots": rng.choice([4, 6]),
        "prefill_tokens": rng.choice([3, 7, 16]),
    }
    requests = make_requests(rng, num_requests, shared=(66, 80) if is_hybrid else (16, 33))
    snapshots = 4 if is_hybrid else 0
    proposals: list[Proposal] = []
    run = make_run(
        *make_stages(stages, family),
        **sizes,
        cohorts=len(stages),
        lanes="test" if len(stages) > 1 else "local",
        num_snapshots=snapshots,
        max_drafts=k,
        make_drafter=lambda seat: Watched(seat, proposals),
    )
    loop = Loop(
        run,
        **sizes,
        depth=len(stages) + rng.choice([0, 1]),
        cohorts=len(stages),
        num_snapshots=snapshots or None,
        max_drafts=k,
        drafts_from_ids=True,
    )
    waiting = list(requests)
    while waiting or loop.scheduler.has_work:
        while waiting and rng.random() < 0.4:
            loop.add(waiting.pop())
        if rng.random() < 0.02:
            loop.abort(rng.randrange(num_requests))
        loop.step()
    (whole,) = make_stages((sum(stages),), family)
    loop.check_answers(whole, requests)
    check_proposals(proposals, requests, loop, k=k)
    run.close()
    return loop


def make_requests(rng: random.Random, count: int, *, shared: tuple[int, int]) -> list[Request]:
    prefixes = [[rng.randrange(8) for _ in range(n)] for n in shared]
    requests = []
    for number in range(count):
        request = random_request(number, rng, prefixes=prefixes, is_hungry=rng.random() < 0.5)
        if rng.random() < 0.7:
            pattern = [rng.randrange(VOCAB) for _ in range(rng.choice([1, 3, 7]))]
            prompt = (request.prompt_ids[: shared[1]] + pattern * 8)[: shared[1] + 20]
            request = msgspec.structs.replace(request, prompt_ids=prompt)
        requests.append(request)
    return requests


def check_proposals(
    proposals: list[Proposal], requests: list[Request], loop: Loop, *, k: int
) -> None:
    """What an abort left unheard cannot be judged."""
    known = {r.id: r.prompt_ids + loop.answers[r.id].tokens for r in requests}
    judged = 0
    for proposal in proposals:
        tokens = known[proposal.request][: proposal.length + 1]
        if len(tokens) == proposal.length + 1:
            assert proposal.drafts == look_up(tokens, k), f"request {proposal.request}"
            judged += 1
    assert judged > 20


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("family", "k"),
    [
        *(("llama", k) for k in range(1, 6)),
        ("hybrid", 2),
        *(pytest.param("hybrid", k, marks=SLOW) for k in (1, 3, 4, 5)),
    ],
)
def test_tokens_are_those_of_plain_decoding(family: str, k: int) -> None:
    loop = play(family, (3,), seed=20 + k, k=k)
    assert max(len(row.emitted) for result in loop.results for row in result.rows) > 1


@pytest.mark.parametrize(
    ("family", "stages"),
    [
        ("llama", (1, 2)),
        ("llama", (1, 1, 1)),
        ("hybrid", (1, 2)),
        pytest.param("hybrid", (1, 1, 1), marks=SLOW),
    ],
)
def test_the_same_at_any_number_of_stages(family: str, stages: tuple[int, ...]) -> None:
    play(family, stages, seed=20, k=3)


def test_the_histories_preempt_and_hit_the_cache_and_chunk() -> None:
    """Or the tests above would prove little."""
    loops = [play("llama", (2,), seed=seed, k=3) for seed in (1, 2, 3)]
    stats = [loop.scheduler.stats() for loop in loops]
    assert sum(s.preemptions for s in stats) >= 3
    assert sum(s.cached_tokens for s in stats) >= 50
    rows = [row for loop in loops for plan in loop.plans for row in plan.prefill]
    assert sum(not row.is_last for row in rows) > 20
    admits = [admit for loop in loops for plan in loop.plans for admit in plan.admits]
    assert any(admit.output_ids for admit in admits)  # a preempted one whose output was cached


@pytest.mark.parametrize("k", [1, 3, 5])
def test_a_text_that_repeats_itself_is_foreseen(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that says a sentence again and again, each time with another name in it: what is
    between the names costs no step of its own."""
    sentence = list(range(20, 45))
    text = [token for name in range(5) for token in (*sentence, name, name + 50)]

    def say(logits: torch.Tensor, *, position: torch.Tensor, **rest: object) -> torch.Tensor:
        return torch.tensor(text)[position.clamp_max(len(text) - 1)]

    monkeypatch.setattr(sampling, "sample", say)
    (stage,) = make_stages((1,), "llama")
    run = make_run(stage, max_drafts=k, make_drafter=NgramDrafter)
    loop = Loop(run, max_drafts=k, drafts_from_ids=True)
    loop.add(make_request(1, prompt=text[:40], max_tokens=len(text) - 40))
    loop.finish()
    assert loop.answers[1].tokens == text[40:]
    rounds = [len(row.emitted) for r in loop.results for row in r.rows if row.emitted]
    assert max(rounds) == k + 1
    # Two steps a name find nothing, and the third begins the sentence anew.
    assert sum(rounds) / len(rounds) > 0.6 * (k + 1)


# -- what it costs ---------------------------------------------------------------------------------


def test_the_budget_knows_what_a_slot_keeps(tmp_path: Path) -> None:
    directory = write_tiny_llama(tmp_path / "tiny")
    config = to_dict(Config())
    config["parallel"] |= {"device": "cpu", "threads": 1}
    rank = Rank()
    rank.hello(WorkerInit(model_dir=str(directory), config=dict(config)))
    plain = LoadWeights(
        dtype="float64",
        kv_dtype="float64",
        threads=1,
        max_context=MAX_CONTEXT,
        max_running=4,
        prefill_tokens=32,
        topology=Topology(stages=(2,)),
        max_drafts=3,
    )
    without = rank.describe(plain)
    looking = rank.describe(msgspec.structs.replace(plain, draft="ngram"))
    each = looking.fixed_bytes_per_slot - without.fixed_bytes_per_slot
    kept: list[Seat] = []

    def make(seat: Seat) -> NgramDrafter:
        kept.append(seat)
        return NgramDrafter(seat)

    run = make_run(*make_stages((1,)), num_slots=7, max_drafts=3, make_drafter=make)
    assert 7 * each == NgramDrafter(kept[0])._history.nbytes
    assert looking.workspace_bytes > without.workspace_bytes
    run.close()
