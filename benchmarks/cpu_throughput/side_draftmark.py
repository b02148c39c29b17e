"""draftmark through its public Python API: engine process, worker process, text assembly."""

from __future__ import annotations

import argparse

from cells import measure

from draftmark import Engine, SamplingParams


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with Engine(args.model, dtype="bfloat16", max_context=2048) as engine:

        def generate(prompts: list[list[int]], num_out: int) -> list[int]:
            sampling = SamplingParams(temperature=0.0, max_tokens=num_out, ignore_eos=True)
            answers = engine.generate(prompts, sampling)
            if any(answer.usage.cached_tokens for answer in answers):
                raise RuntimeError("a prompt was cached: the figure would not be comparable")
            return [len(answer.token_ids) for answer in answers]

        measure("draftmark", generate, repeats=args.repeats)


if __name__ == "__main__":
    main()
