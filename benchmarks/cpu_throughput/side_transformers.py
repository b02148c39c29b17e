"""`transformers` generate, greedy, bf16, batch 1 only."""

from __future__ import annotations

import argparse

import torch
from cells import CELLS, measure
from transformers import AutoModelForCausalLM


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(2)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16).eval()

    def generate(prompts: list[list[int]], num_out: int) -> list[int]:
        ids = torch.tensor(prompts)
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=num_out,
                min_new_tokens=num_out,
                do_sample=False,
                temperature=None,
                top_p=None,
                pad_token_id=2,
            )
        return [out.shape[1] - ids.shape[1]] * len(prompts)

    measure("transformers", generate, repeats=args.repeats, cells=CELLS[:1])


if __name__ == "__main__":
    main()
