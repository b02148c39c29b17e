"""Flags of vLLM, SGLang and llama.cpp that people type out of habit, and what ours are.

A flag that means the same under the same name (`--host`, `--port`, `--seed`, `--dtype`,
`--served-model-name`, `--chat-template`) is simply one of ours and not listed. `explain` is asked
about a flag only after it turned out not to be ours.
"""

from __future__ import annotations

_VLLM, _SGLANG, _LLAMA = "vLLM", "SGLang", "llama.cpp"
_MODEL = "ours is the positional argument MODEL"
_NO_REMOTE_CODE = "draftmark never runs code from a checkpoint"
_ALWAYS = "it is always on here"
_NO_GRAPHS = "ours is --eager all"
_DEVICE = "ours is --device cpu or --device cuda; all layers run on one device"
_LOG = "ours is --log-prompts"
_SPECULATE = "ours are --draft and --draft-tokens"

_TABLE: dict[str, dict[str, str]] = {
    _VLLM: {
        "--model": _MODEL,
        "--tokenizer": "the tokenizer comes from MODEL",
        "--max-model-len": "ours is --max-context",
        "--gpu-memory-utilization": "ours is --memory-fraction",
        "--kv-cache-memory-bytes": "ours is --kv-pool-tokens (in tokens)",
        "--num-gpu-blocks-override": "ours is --kv-pool-tokens (in tokens)",
        "--max-num-seqs": "ours is --max-running",
        "--max-num-batched-tokens": "ours is --prefill-tokens",
        "--long-prefill-token-threshold": "ours is --max-turn-ms or --prefill-tokens",
        "--tensor-parallel-size": "ours is --tp",
        "-tp": "ours is --tp",
        "--pipeline-parallel-size": "ours is --pp",
        "-pp": "ours is --pp",
        "--data-parallel-size": "draftmark has no data parallelism: start several servers",
        "-dp": "draftmark has no data parallelism: start several servers",
        "--kv-cache-dtype": "ours is --kv-dtype",
        "--enforce-eager": _NO_GRAPHS,
        "--cudagraph-capture-sizes": "ours is --graph-rows",
        "--cuda-graph-sizes": "ours is --graph-rows",
        "--compilation-config": "ours are --graph-rows and --eager",
        "-O": "ours are --graph-rows and --eager",
        "--speculative-config": _SPECULATE,
        "--num-speculative-tokens": "ours is --draft-tokens",
        "--enable-prefix-caching": _ALWAYS,
        "--enable-chunked-prefill": _ALWAYS,
        "--async-scheduling": _ALWAYS,
        "--block-size": "a page is always 16 tokens",
        "--swap-space": "draftmark does not swap: a preempted request is recomputed",
        "--cpu-offload-gb": "draftmark does not offload weights",
        "--quantization": "the format comes from MODEL",
        "-q": "the format comes from MODEL",
        "--load-format": "the format comes from MODEL",
        "--hf-config-path": "the configuration comes from MODEL",
        "--revision": "put the wanted revision in a directory and give that as MODEL",
        "--download-dir": "set HF_HOME",
        "--tool-call-parser": "ours is --tool-parser",
        "--enable-auto-tool-choice": "ours is --tool-parser",
        "--structured-outputs-config": "structured output is not built yet",
        "--api-key": "ours is --api-key-file (a key on a command line is seen by everybody)",
        "--allowed-origins": "ours is --allowed-hosts",
        "--enable-log-requests": _LOG,
        "--disable-log-requests": "prompts are not logged unless --log-prompts asks for it",
        "--trust-remote-code": _NO_REMOTE_CODE,
        "--generation-config": "it is read from MODEL and fills only what a request leaves out",
        "--override-generation-config": "say it in the request",
        "--scheduling-policy": "requests carry a `priority`; ties go by arrival",
        "--distributed-executor-backend": "ours is --lanes",
        "--attention-backend": "`draftmark tune` chooses (not built yet)",
        "--shutdown-timeout": "ours is --drain-seconds",
    },
    _SGLANG: {
        "--model-path": _MODEL,
        "--tokenizer-path": "the tokenizer comes from MODEL",
        "--context-length": "ours is --max-context",
        "--mem-fraction-static": "ours is --memory-fraction",
        "--max-total-tokens": "ours is --kv-pool-tokens",
        "--max-running-requests": "ours is --max-running",
        "--max-queued-requests": "ours is --max-queue",
        "--max-mamba-cache-size": "ours is --state-slots",
        "--chunked-prefill-size": "ours is --prefill-tokens",
        "--max-prefill-tokens": "ours is --prefill-tokens",
        "--tp-size": "ours is --tp",
        "--pp-size": "ours is --pp",
        "--dp-size": "draftmark has no data parallelism: start several servers",
        "--dp": "draftmark has no data parallelism: start several servers",
        "--pp-max-micro-batch-size": "ours is --cohorts",
        "--cuda-graph-bs": "ours is --graph-rows",
        "--cuda-graph-max-bs": "ours is --graph-rows (its largest)",
        "--disable-cuda-graph": _NO_GRAPHS,
        "--speculative-algorithm": "ours is --draft",
        "--speculative-algo": "ours is --draft",
        "--speculative-num-steps": "ours is --draft-tokens",
        "--speculative-num-draft-tokens": "ours is --draft-tokens",
        "--speculative-eagle-topk": "draftmark drafts a chain, not a tree; see --draft-tokens",
        "--speculative-draft-model-path": "drafts come from the model itself; see --draft",
        "--random-seed": "ours is --seed",
        "--page-size": "a page is always 16 tokens",
        "--disable-radix-cache": "the prefix cache is always on; /v1/engine/cache/reset empties it",
        "--watchdog-timeout": "ours is --step-timeout-s",
        "--log-requests": _LOG,
        "--enable-nan-detection": "it is always on; see --on-nan",
        "--schedule-policy": "requests carry a `priority`; ties go by arrival",
        "--enable-dp-attention": "draftmark has no data parallelism: start several servers",
    },
    _LLAMA: {
        "-m": _MODEL,
        "-hf": _MODEL,
        "-hfr": _MODEL,
        "--hf-repo": _MODEL,
        "--alias": "ours is --served-model-name",
        "-a": "ours is --served-model-name",
        "--ctx-size": "ours is --max-context",
        "-c": "ours is --max-context",
        "--n-gpu-layers": _DEVICE,
        "--gpu-layers": _DEVICE,
        "-ngl": _DEVICE,
        "--threads-batch": "ours is --threads",
        "-t": "ours is --threads",
        "-tb": "ours is --threads",
        "--parallel": "ours is --max-running",
        "-np": "ours is --max-running",
        "--batch-size": "ours is --prefill-tokens",
        "-b": "ours is --prefill-tokens",
        "--ubatch-size": "ours is --prefill-tokens",
        "-ub": "ours is --prefill-tokens",
        "--cache-type-k": "ours is --kv-dtype",
        "-ctk": "ours is --kv-dtype",
        "--cache-type-v": "ours is --kv-dtype",
        "-ctv": "ours is --kv-dtype",
        "--tensor-split": "ours are --tp and --stages",
        "-ts": "ours are --tp and --stages",
        "--split-mode": "ours are --tp and --pp",
        "-sm": "ours are --tp and --pp",
        "--draft-max": "ours is --draft-tokens",
        "--spec-draft-n-max": "ours is --draft-tokens",
        "--model-draft": "drafts come from the model itself; see --draft",
        "-md": "drafts come from the model itself; see --draft",
        "--chat-template-file": "ours is --chat-template (a file)",
        "--jinja": _ALWAYS,
        "--flash-attn": "`draftmark tune` chooses (not built yet)",
        "-fa": "`draftmark tune` chooses (not built yet)",
        "--cont-batching": _ALWAYS,
        "-cb": _ALWAYS,
        "--mlock": "draftmark copies the weights into memory of its own",
        "--no-mmap": "draftmark copies the weights into memory of its own",
        "--n-predict": "ours is max_tokens in the request, --max-tokens of `draftmark generate`",
        "-n": "ours is max_tokens in the request, --max-tokens of `draftmark generate`",
        "-p": "ours is --prompt of `draftmark generate`",
        "--temp": "ours is temperature in the request, --temperature of `draftmark generate`",
        "-s": "ours is --seed",
    },
}


def explain(flag: str) -> str | None:
    """One line about a foreign `flag` (`--x-y`, `-x`, or a file key `x_y`), None when unknown."""
    wanted = flag if flag.startswith("-") else "--" + flag.replace("_", "-")
    for tool, table in _TABLE.items():
        for spelled in (wanted, wanted.replace("--no-", "--", 1)):
            if spelled in table:
                return f"{flag} is a flag of {tool}; {table[spelled]}"
    return None


def foreign_flags() -> tuple[str, ...]:
    """Every flag in the table."""
    return tuple(flag for table in _TABLE.values() for flag in table)
