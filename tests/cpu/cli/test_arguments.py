"""Flags come from the tree; their list is frozen; a wrong command line is answered by one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmark.cli.arguments import (
    ALL_SECTIONS,
    ENGINE_SECTIONS,
    CommandParser,
    add_config_flags,
    declared_from,
)
from draftmark.cli.flags_doc import flags_doc
from draftmark.core.config import Config
from draftmark.core.errors import ConfigError
from draftmark.core.options import options
from draftmark.core.resolve import Declared

# Names that stay: change this list only with the design (or the issue) that asks for it.
FLAGS = """
MODEL --dtype --kv-dtype --max-context --served-model-name --chat-template --tool-parser
--reasoning-parser --seed
--memory-fraction --kv-pool-tokens --state-slots --snapshots
--max-running --max-turn-ms --prefill-tokens --max-queue
--device --threads --tp --pp --stages --cohorts --lanes
--stages-per-worker
--graph-rows --eager
--draft --draft-tokens --synthetic-acceptance
--host --port --api-key-file --allowed-hosts --log-prompts --drain-seconds
--on-nan --debug-sync --record-plans --step-timeout-s --inject
"""
DOC = Path(__file__).resolve().parents[3] / "docs" / "flags.md"


def parser() -> CommandParser:
    made = CommandParser("serve", about="Serve.")
    add_config_flags(made, sections=ALL_SECTIONS)
    return made


def parse(*argv: str) -> Declared:
    return declared_from(parser().parse(argv))


def test_the_list_of_flags_is_frozen() -> None:
    assert [option.flag for option in options()] == FLAGS.split()


def test_every_flag_is_in_the_help_with_its_default() -> None:
    text = parser().format_help()
    squeezed = " ".join(text.split())
    for option in options():
        assert f" {option.flag}" in text
        assert " ".join(option.doc.split()) in squeezed
    assert squeezed.count("[default: ") == len(options())
    assert max(map(len, text.splitlines())) <= 100


def test_the_documentation_of_flags_is_current() -> None:
    assert DOC.read_text() == flags_doc(), "run python -m draftmark.cli.flags_doc > docs/flags.md"


def test_nothing_given_is_the_default_tree() -> None:
    declared = parse()
    assert declared.config == Config()
    assert {source.kind for source in declared.sources.values()} == {"default"}


def test_flags_are_read() -> None:
    declared = parse(
        *("some/dir", "--max-context=100", "--eager", "all", "--seed", "-5", "--no-log-prompts"),
        *("--served-model-name", "a,b", "--kv-pool-tokens", "auto"),
    )
    assert declared.config.model.model == "some/dir"
    assert declared.config.model.max_context == 100
    assert declared.config.model.seed == -5
    assert declared.config.model.served_model_name == ("a", "b")
    assert declared.config.memory.kv_pool_tokens is None
    assert declared.config.server.log_prompts is False
    assert declared.sources["server.log_prompts"].kind == "flag"
    assert declared.sources["memory.kv_pool_tokens"].kind == "flag"


def test_a_flag_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("server: {port: 9000, host: localhost, log_prompts: true}\n")
    declared = parse("--config", str(file), "--port", "9001", "--no-log-prompts")
    assert declared.config.server.port == 9001
    assert declared.config.server.host == "localhost"
    assert declared.config.server.log_prompts is False


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--max-model-len", "4096"], "--max-model-len is a flag of vLLM; ours is --max-context"),
        (["--max-model-len=4096"], "--max-model-len is a flag of vLLM; ours is --max-context"),
        (["-tp", "8"], "-tp is a flag of vLLM; ours is --tp"),
        (["-hf", "a/b"], "-hf is a flag of llama.cpp; ours is the positional argument MODEL"),
        (["-c", "4096"], "-c is a flag of llama.cpp; ours is --max-context"),
        (["--prot", "80"], "unknown flag --prot (did you mean --port?)"),
        (["--max-cont", "80"], "unknown flag --max-cont (did you mean --max-context?)"),
        (["--xyzzy"], "unknown flag --xyzzy"),
        (["a", "b"], "unexpected argument b"),
        (["--port"], "--port: expected one argument"),
        (["--port", "http"], "--port must be a whole number from 0 to 65535; got 'http'"),
        (["--dtype", "bf16"], "(did you mean bfloat16?)"),
        (["--config", "no/such/file"], "--config no/such/file: cannot be read"),
        (["--max-running", "9", "--state-slots", "8"], "--max-running 9 is above"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_flag(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(*argv)
    assert message in refused.value.message
    assert "\n" not in refused.value.message


def test_commands_without_a_server_take_no_server_flags() -> None:
    made = CommandParser("generate", about="Complete.")
    add_config_flags(made, sections=ENGINE_SECTIONS)
    with pytest.raises(ConfigError, match="unknown flag --drain-seconds"):
        made.parse(["--drain-seconds", "3"])
