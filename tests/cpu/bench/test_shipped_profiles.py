"""Every profile that ships can be planned: against the truth server, its prompts from stand-ins for
the corpus and the data folder."""

from __future__ import annotations

import io
import json

import msgspec
import pytest

from draftmark.bench.ledger.ledger import Ledger
from draftmark.bench.profile import Mode, PromptSource, load_profile, shipped_profiles
from draftmark.bench.screen import Ui, open_screen
from draftmark.bench.session import Settings, open_session, work_of
from draftmark.bench.session.planning import plan_run
from tests.fakes.bench_commands import Bench
from tests.fakes.bench_tokens import file_tokenizer, numbered


@pytest.mark.parametrize("name", shipped_profiles())
def test_it_is_planned(bench: Bench, name: str) -> None:
    file = load_profile(name)
    profile = file.profile
    assert profile.name == name
    ledger = Ledger(bench.folder / "ledger.jsonl")
    if profile.source is PromptSource.LEDGER:
        size = profile.n_requests * profile.isl
        tokenizer = file_tokenizer(bench.tokenizer).sha256
        ledger.add(numbered(size * profile.runs, tokenizer=tokenizer))
    if profile.file is not None:
        path = bench.folder / profile.file
        path.parent.mkdir(parents=True)
        rows = [{"turns": [f"question {n}"]} for n in range(profile.n_requests)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = Settings(
        url=bench.truth.url,
        runs=bench.out,
        command=[],
        adapter="draftmark",
        tokenizer=str(bench.tokenizer),
        data=bench.folder,
        ledger=ledger.path,
    )
    session = open_session(settings, open_screen(Ui.PLAIN, steps=1, out=io.StringIO()))
    session.check(profile, runs=profile.runs)
    planned = plan_run(
        settings,
        work_of(file),
        adapter=session.adapter,
        tokenizer=file_tokenizer(bench.tokenizer),
        template_tokens=None,
        run_id="r",
        start_id=None,
    )
    assert len(planned.requests) == profile.n_requests
    if profile.source is not PromptSource.FILE:
        lengths = [len(msgspec.json.decode(one.body)["prompt"]) for one in planned.requests]
        assert set(lengths) == {profile.isl}
    assert {one.max_tokens for one in planned.requests} == {profile.osl}
    timed = [one.at_s is not None for one in planned.requests]
    assert not any(timed) if profile.mode is Mode.CLOSED else all(timed)
    assert bench.asked == []
