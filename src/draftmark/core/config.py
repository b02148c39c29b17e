"""The configuration tree: one dataclass field is one flag, one file key and one line of docs.

`AUTO` (None) means "choose for me"; `core.resolve` turns every auto into a value with its source.
Nothing changes a `Config` after it is made. `--kv-pool-tokens` is `memory.kv_pool_tokens` in a
file. Metadata of a field: `doc`, `choices`, `metavar`, and for numbers `low` and `high`, the ends
of the allowed range; `open_low` leaves `low` itself out. `core.options` reads all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

AUTO = None


_INT32_MAX = 2**31 - 1
_SEED_LOW, _SEED_HIGH = -(2**63), 2**63 - 1


def _option(
    default: Any,
    doc: str,
    *,
    choices: tuple[str, ...] = (),
    metavar: str = "",
    low: float = 0,
    high: float = _INT32_MAX,
    open_low: bool = False,
) -> Any:
    return field(
        default=default,
        metadata={
            "doc": doc,
            "choices": choices,
            "metavar": metavar,
            "low": low,
            "high": high,
            "open_low": open_low,
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Which model, and how it is read."""

    model: str = _option(
        "smollm2",
        "Model to serve: a directory or .gguf file (a name with a slash that exists), a built-in "
        "name (smollm2, tiny), or a Hugging Face hub id.",
        metavar="MODEL",
    )
    dtype: str | None = _option(
        AUTO,
        "Number format of weights and activations. auto: the checkpoint's; on a CPU another one if "
        "a short probe finds it clearly faster.",
        choices=("bfloat16", "float16", "float32", "float64"),
    )
    kv_dtype: str | None = _option(
        AUTO,
        "Number format of cached keys and values. auto: the same as --dtype.",
        choices=("bfloat16", "float16", "float32", "float64"),
    )
    max_context: int | None = _option(
        AUTO,
        "Most tokens of prompt and answer together. auto: the model's own limit, or what the "
        "KV pool holds if that is less.",
        metavar="TOKENS",
        low=2,
    )
    served_model_name: tuple[str, ...] = _option(
        (),
        "Name(s) the API answers to, comma separated. Without it: MODEL as given.",
        metavar="NAMES",
    )
    chat_template: str | None = _option(
        AUTO, "File with a Jinja chat template. auto: the checkpoint's own.", metavar="FILE"
    )
    tool_parser: str | None = _option(
        AUTO, "Parser of tool calls in answers (not built yet).", metavar="NAME"
    )
    reasoning_parser: str | None = _option(
        AUTO, "Parser of reasoning in answers (not built yet).", metavar="NAME"
    )
    seed: int = _option(
        0,
        "Seed from which requests without one draw theirs.",
        metavar="N",
        low=_SEED_LOW,
        high=_SEED_HIGH,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig:
    """How much memory the engine may take."""

    memory_fraction: float | None = _option(
        AUTO,
        "Share of the device that weights, pools and work space may take together; on a CPU, of "
        "the memory available at start. auto: 0.9 on a GPU, 0.5 on a CPU (0.9 there too when "
        "--kv-pool-tokens says how much is wanted).",
        metavar="SHARE",
        high=1,
        open_low=True,
    )
    kv_pool_tokens: int | None = _option(
        AUTO, "Tokens the KV pool holds. auto: what the memory allows.", metavar="TOKENS", low=16
    )
    state_slots: int | None = _option(
        AUTO,
        "Sequences that can hold device state at once, draining ones included. auto: --max-running "
        "and a quarter more.",
        metavar="N",
        low=1,
    )
    snapshots: int | None = _option(
        AUTO,
        "Snapshots of recurrent state that the prefix cache of a hybrid model keeps; 0 turns the "
        "cache off there. auto: a quarter of the memory for pools, at most 4 a state slot; none "
        "where no layer is recurrent.",
        metavar="N",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleConfig:
    """Which tokens run next."""

    max_running: int | None = _option(
        AUTO,
        "Most sequences that run at once. auto: 64 on a CPU, 256 on a GPU.",
        metavar="N",
        low=1,
    )
    max_turn_ms: float | None = _option(
        AUTO,
        "Longest step wanted while anything decodes; prefill chunks shrink to fit, by the cost "
        "table measured at start. auto: no limit but --prefill-tokens.",
        metavar="MS",
        open_low=True,
    )
    prefill_tokens: int | None = _option(
        AUTO,
        "Most prompt tokens in one step. auto: 2048 on a CPU, 4096 on a GPU.",
        metavar="TOKENS",
        low=1,
    )
    max_queue: int = _option(
        1024, "Most waiting requests; beyond it, HTTP 429 at once.", metavar="N", low=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelConfig:
    """Over how many devices, and how they talk."""

    device: str | None = _option(
        AUTO, "Where the model runs. auto: cuda where there is one.", choices=("cpu", "cuda")
    )
    threads: int | None = _option(
        AUTO, "Threads of a CPU worker. auto: the cores this process may use.", metavar="N", low=1
    )
    tp: int = _option(
        1, "Tensor-parallel ranks: each layer is split over so many.", metavar="N", low=1
    )
    pp: int = _option(
        1, "Pipeline stages: the layers are split into so many runs.", metavar="N", low=1
    )
    stages: tuple[int, ...] = _option(
        (),
        "Layers of each pipeline stage, comma separated. Without it: from the cost table, with the "
        "head and sampling charged to the last stage (`draftmark tune stages`).",
        metavar="N,N",
        low=1,
    )
    cohorts: int | None = _option(
        AUTO,
        "Cohorts (microbatches) in flight. auto: as many as stages.",
        metavar="N",
        low=1,
    )
    lanes: str | None = _option(
        AUTO,
        "Channel between stages of different workers: gloo or nccl over any network, peer through "
        "memory that both workers of one host map. local: one worker holds every stage; test: "
        "likewise, with hostile timing. auto: nccl on GPUs; on CPUs peer, or gloo where workers "
        "are on several hosts; local where there is one worker.",
        choices=("local", "test", "gloo", "nccl", "peer"),
    )
    stages_per_worker: int | None = _option(
        AUTO,
        "Neighbouring stages that one worker process holds. auto: 1; with lanes local or test all.",
        metavar="N",
        low=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphConfig:
    """CUDA graphs (not built yet)."""

    graph_rows: tuple[int, ...] = _option(
        (),
        "Row counts to capture graphs for, comma separated (not built yet).",
        metavar="N,N",
        low=1,
    )
    eager: tuple[str, ...] = _option(
        ("all",),
        "Phases that run without graphs: none, all, or a list of verify,draft,prefill (only all "
        "is built yet).",
        choices=("none", "all", "verify", "draft", "prefill"),
        metavar="PHASES",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationConfig:
    """Drafting: tokens that are guessed and then verified together. It changes no token, unless
    acceptance is synthetic."""

    draft: str = _option(
        "none",
        "Where drafts come from: mtp is the model's own head, where it has one; ngram, for any "
        "model, is what followed when the last tokens last came in the same prompt or answer.",
        choices=("none", "mtp", "ngram"),
    )
    draft_tokens: int | None = _option(
        AUTO,
        "Drafts of a row in a step. auto: at most 3, as many as pay by what is accepted and what "
        "steps take; 0 with --draft none.",
        metavar="K",
        high=8,
    )
    synthetic_acceptance: tuple[float, ...] = _option(
        (),
        "For benchmarks with weights of no meaning: coins accept drafts at this rate, given that "
        "those before in the window were accepted; one rate, or one for each of --draft-tokens, "
        "comma separated. The text means nothing then, and every output says so.",
        metavar="RATES",
        high=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The HTTP server."""

    host: str = _option("127.0.0.1", "Address to listen on.", metavar="ADDRESS")
    port: int = _option(8000, "Port to listen on; 0 takes a free one.", metavar="PORT", high=65535)
    api_key_file: str | None = _option(
        AUTO, "File with one API key a line. Without it no key is asked for.", metavar="FILE"
    )
    allowed_hosts: tuple[str, ...] = _option(
        (),
        "Host names accepted in Host and Origin besides the loopback ones and --host, comma "
        "separated; * accepts any.",
        metavar="NAMES",
    )
    log_prompts: bool = _option(False, "Write prompt and answer text to the log.")
    drain_seconds: float = _option(
        30.0, "Longest wait for running requests after SIGTERM.", metavar="S"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DebugConfig:
    """Finding faults."""

    on_nan: str = _option(
        "fail",
        "On a non-finite value: fail ends the request, stop also ends the server.",
        choices=("fail", "stop"),
    )
    debug_sync: tuple[str, ...] = _option(
        (),
        "Synchronise around lane, graph, copy, comma separated, to bisect a race (graph is not "
        "built yet). What it costs is printed.",
        choices=("lane", "graph", "copy"),
        metavar="KINDS",
    )
    record_plans: str | None = _option(
        AUTO, "Write every plan and result to this file, for `draftmark rerun`.", metavar="FILE"
    )
    step_timeout_s: float = _option(
        60.0,
        "A step that takes longer than this is a hang: the server stops.",
        metavar="S",
        open_low=True,
    )
    inject: tuple[str, ...] = _option(
        (),
        "Faults for tests, comma separated: delay=MS, nan=LAYER:STEP, or drop, exit or hang="
        "WORKER:STEP.",
        metavar="FAULTS",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole tree, as declared. See `core.resolve` for what became of it."""

    model: ModelConfig = ModelConfig()
    memory: MemoryConfig = MemoryConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    parallel: ParallelConfig = ParallelConfig()
    graphs: GraphConfig = GraphConfig()
    speculation: SpeculationConfig = SpeculationConfig()
    server: ServerConfig = ServerConfig()
    debug: DebugConfig = DebugConfig()
