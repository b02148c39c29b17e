"""Traces: rows as recorded, broken ones named by line, prompts that share what the trace says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from draftmark.bench.trace_prompts import Over, fit_rows, trace_prompts
from draftmark.bench.traces import TraceFormat, TraceRow, read_trace
from draftmark.core.errors import ConfigError

ALLOWED = np.arange(20, 49_000, dtype=np.uint32)
MOONCAKE = (
    '{"timestamp": 0, "input_length": 1030, "output_length": 5, "hash_ids": [0, 1, 2]}',
    '{"timestamp": 3000, "input_length": 600, "output_length": 6, "hash_ids": [0, 3]}',
    '{"timestamp": 3000, "input_length": 1536, "output_length": 7, "hash_ids": [0, 1, 2]}',
)
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens",
    "2023-11-16 18:15:46.6805900,374,44",
    "2023-11-16 18:15:50.9951690,396,109",
    "2023-11-16 18:15:51,4,1",
)


def write(folder: Path, *lines: str) -> Path:
    path = folder / "trace"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def ids_of(rows: list[TraceRow], *, salt: str = "s", **fields: object) -> list[list[int]]:
    prompts = trace_prompts(rows, ALLOWED, salt=salt, **fields)  # type: ignore[arg-type]
    return [prompt.ids or [] for prompt in prompts]


def shared(one: list[int], other: list[int]) -> int:
    """How many ids two prompts begin with in common."""
    return next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


def test_mooncake_rows(tmp_path: Path) -> None:
    rows = read_trace(write(tmp_path, *MOONCAKE), TraceFormat.MOONCAKE)
    assert [(row.line, row.at_s, row.isl, row.osl) for row in rows] == [
        (1, 0.0, 1030, 5),
        (2, 3.0, 600, 6),
        (3, 3.0, 1536, 7),
    ]
    assert rows[0].block_ids == (0, 1, 2)
    assert len(read_trace(write(tmp_path, *MOONCAKE), TraceFormat.MOONCAKE, limit=2)) == 2


def test_azure_rows_with_seven_decimal_places(tmp_path: Path) -> None:
    rows = read_trace(write(tmp_path, *AZURE), TraceFormat.AZURE)
    assert [(row.line, row.at_s, row.isl, row.osl) for row in rows] == [
        (2, 0.0, 374, 44),
        (3, pytest.approx(4.314579), 396, 109),
        (4, pytest.approx(4.319410), 4, 1),
    ]


def test_our_own_rows_hold_lengths_texts_or_messages(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '{"at_s": 0, "osl": 1, "isl": 30, "hash_ids": [4, 5], "block_tokens": 16}',
        '{"at_s": 0.5, "osl": 2, "prompt": "Once"}',
        '{"at_s": 0.5, "osl": 3, "messages": [{"role": "user", "content": "a"}]}',
    )
    lengths, text, messages = read_trace(path, TraceFormat.JSONL)
    assert (lengths.isl, lengths.block_ids, lengths.block_tokens) == (30, (4, 5), 16)
    assert (text.text, text.isl, text.at_s) == ("Once", None, 0.5)
    assert messages.messages == [{"role": "user", "content": "a"}]
    prompts = trace_prompts([text, messages], None, salt="s")
    assert [prompt.osl for prompt in prompts] == [2, 3]


@pytest.mark.parametrize(
    ("format", "lines", "message"),
    [
        (TraceFormat.MOONCAKE, [MOONCAKE[0], "{"], "trace:2: "),
        (TraceFormat.MOONCAKE, [MOONCAKE[0].replace("1030", "2000")], ":1: 3 hash ids for 2000"),
        (TraceFormat.MOONCAKE, [MOONCAKE[0].replace(": 5", ": 0")], ":1: .*output_length"),
        (TraceFormat.MOONCAKE, [MOONCAKE[0].replace("hash_ids", "ids")], ":1: "),
        (TraceFormat.MOONCAKE, [MOONCAKE[1], MOONCAKE[0]], ":2: earlier than the row before"),
        (TraceFormat.MOONCAKE, [""], "no rows"),
        (TraceFormat.AZURE, [AZURE[1]], ":1: the columns are TIMESTAMP"),
        (TraceFormat.AZURE, [AZURE[0], "2023-11-16 18:15:46.6,374"], ":2: 2 columns, not 3"),
        (TraceFormat.AZURE, [AZURE[0], "yesterday,374,44"], ":2: 'yesterday' is no time"),
        (
            TraceFormat.AZURE,
            [*AZURE[:2], "2023-11-16 18:15:50.9,-3,4"],
            ":3: ContextTokens is '-3'",
        ),
        (TraceFormat.AZURE, [AZURE[0], AZURE[2], AZURE[1]], ":3: earlier than the row before"),
        (TraceFormat.JSONL, ['{"at_s": 0, "osl": 1}'], ":1: exactly one of .* not none"),
        (TraceFormat.JSONL, ['{"at_s": 0, "osl": 1, "isl": 3, "prompt": "a"}'], "isl and prompt"),
        (TraceFormat.JSONL, ['{"at_s": 0, "osl": 1, "isl": 513, "hash_ids": [1]}'], "make up 513"),
        (TraceFormat.JSONL, ['{"at_s": 0, "osl": 1, "islo": 3}'], "unknown field `islo`"),
    ],
)
def test_a_broken_row_is_named_with_its_line(
    tmp_path: Path, format: TraceFormat, lines: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_trace(write(tmp_path, *lines), format)


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trace(tmp_path / "none", TraceFormat.AZURE)
    with pytest.raises(ConfigError, match="--limit is at least 1"):
        read_trace(write(tmp_path, *AZURE), TraceFormat.AZURE, limit=0)


def test_prompts_share_exactly_what_the_trace_says(tmp_path: Path) -> None:
    rows = read_trace(write(tmp_path, *MOONCAKE), TraceFormat.MOONCAKE)
    first, second, third = ids_of(rows)
    assert [len(ids) for ids in (first, second, third)] == [1030, 600, 1536]
    assert shared(first, second) == 512
    assert shared(first, third) == 1030
    assert first != ids_of(rows, salt="another run")[0][:1030]
    assert shared(first, ids_of(rows, salt="another run")[0]) < 16


def test_the_same_block_at_another_depth_is_another(tmp_path: Path) -> None:
    rows = [
        TraceRow(line=n, at_s=0, isl=1024, osl=1, block_ids=ids)
        for n, ids in enumerate([(1, 2), (2, 1)])
    ]
    one, other = ids_of(rows)
    assert one[512:] != other[:512] and one[:512] != other[512:]


def test_the_lead_is_counted_and_leaves_the_sharing_as_it_is(tmp_path: Path) -> None:
    rows = read_trace(write(tmp_path, *MOONCAKE), TraceFormat.MOONCAKE)
    first, second, _ = ids_of(rows, lead=[1])
    assert (len(first), first[0], second[0]) == (1030, 1, 1)
    assert shared(first, second) == 512
    short = [TraceRow(line=7, at_s=0, isl=1, osl=1)]
    with pytest.raises(ConfigError, match="line 7 of the trace: 1 tokens are no more than the 1"):
        ids_of(short, lead=[1])


def test_rows_without_blocks_share_nothing(tmp_path: Path) -> None:
    rows = read_trace(write(tmp_path, *AZURE), TraceFormat.AZURE)
    first, second, third = ids_of(rows)
    assert [len(ids) for ids in (first, second, third)] == [374, 396, 4]
    assert shared(first, second) < 4


def test_another_process_makes_the_same_prompts(tmp_path: Path) -> None:
    """Whatever its hash seed is: Python's own hash differs from process to process."""
    path = write(tmp_path, *MOONCAKE)
    code = (
        "import sys, pathlib, numpy as np\n"
        "from draftmark.bench.traces import TraceFormat, read_trace\n"
        "from draftmark.bench.trace_prompts import trace_prompts\n"
        "rows = read_trace(pathlib.Path(sys.argv[1]), TraceFormat.MOONCAKE)\n"
        "allowed = np.arange(20, 49000, dtype=np.uint32)\n"
        "print([p.sha256 for p in trace_prompts(rows, allowed, salt='s')])"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code, str(path)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            env={"PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    rows = read_trace(path, TraceFormat.MOONCAKE)
    mine = [prompt.sha256 for prompt in trace_prompts(rows, ALLOWED, salt="s")]
    assert printed == {str(mine)}


def test_long_prompts_are_cut_left_out_or_scaled(tmp_path: Path) -> None:
    rows = read_trace(write(tmp_path, *MOONCAKE), TraceFormat.MOONCAKE)
    whole = ids_of(rows)

    capped = fit_rows(rows, max_isl=700, over=Over.CAP)
    assert [row.isl for row in capped.rows] == [700, 600, 700]
    assert capped.told == "2 of 3 prompts were cut to --max-isl"
    assert ids_of(capped.rows) == [ids[:700] for ids in whole]

    dropped = fit_rows(rows, max_isl=700, over=Over.DROP)
    assert [row.line for row in dropped.rows] == [2]
    assert dropped.told == "2 prompts above --max-isl were left out, 1 sent"

    scaled = fit_rows(rows, max_isl=100, over=Over.SCALE)
    assert [row.isl for row in scaled.rows] == [67, 39, 100]
    assert scaled.told == "all prompts are 0.0651 of the trace's length"
    first, second, third = ids_of(scaled.rows)
    assert [len(ids) for ids in (first, second, third)] == [67, 39, 100]
    assert (shared(first, second), shared(first, third)) == (33, 67)


def test_tiny_scales_keep_every_prompt(tmp_path: Path) -> None:
    rows = read_trace(write(tmp_path, *MOONCAKE), TraceFormat.MOONCAKE)
    scaled = fit_rows(rows, max_isl=2, over=Over.SCALE)
    assert [len(ids) for ids in ids_of(scaled.rows)] == [row.isl for row in scaled.rows]
    assert all(row.isl for row in scaled.rows)


def test_nothing_is_changed_where_all_fits(tmp_path: Path) -> None:
    rows = read_trace(write(tmp_path, *MOONCAKE), TraceFormat.MOONCAKE)
    for fitted in (
        fit_rows(rows, max_isl=1536, over=None),
        fit_rows(rows, max_isl=None, over=None),
    ):
        assert (fitted.rows, fitted.told) == (rows, None)


def test_what_becomes_of_long_prompts_must_be_said(tmp_path: Path) -> None:
    rows = read_trace(write(tmp_path, *MOONCAKE), TraceFormat.MOONCAKE)
    message = r"2 of 3 prompts are above 700 tokens \(the longest has 1536\): --over cap"
    with pytest.raises(ConfigError, match=message):
        fit_rows(rows, max_isl=700, over=None)
    with pytest.raises(ConfigError, match="all 3 prompts are above 10 tokens"):
        fit_rows(rows, max_isl=10, over=Over.DROP)
    text = [TraceRow(line=4, at_s=0, isl=None, osl=1, text=json.dumps("a"))]
    with pytest.raises(ConfigError, match="line 4 of the trace has its own prompt"):
        fit_rows(text, max_isl=10, over=Over.CAP)
