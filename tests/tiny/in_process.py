"""`tiny` in this process: the real scheduler, runtime and kernels, so that a test can break one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer

from draftmark.core.generation import read_generation
from draftmark.models.stage import Stage
from draftmark.runtime.pipeline import Placing, make_worker_run
from tests.cpu.models.one_sequence import load_stage
from tests.cpu.runtime.harness import CPU, Loop, make_limits, make_request, make_topology, no_wire
from training.tiny.conversation import Conversation
from training.tiny.rendering import segments

_CONTEXT = 512
_PAGE_TOKENS = 16


class InProcess:
    """Greedy answers of up to `max_tokens` tokens, all conversations at once."""

    def __init__(self, model_dir: Path, *, dtype: torch.dtype) -> None:
        self.stage: Stage = load_stage(model_dir, dtype=dtype, context=_CONTEXT)
        self._dtype = dtype
        self._tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        self._eos = read_generation(model_dir).eos_ids

    def prompt(self, made: Conversation) -> list[int]:
        """What stands before the answer, as token ids."""
        return self._tokenizer.encode(segments(made)[0][0], add_special_tokens=False).ids

    def answers(self, conversations: Sequence[Conversation], *, max_tokens: int) -> list[str]:
        """The texts without their end token, as far as they go: the sentinel may end one early."""
        requests = [
            make_request(
                number,
                prompt=self.prompt(made),
                max_tokens=max_tokens,
                stop_ids=self._eos,
            )
            for number, made in enumerate(conversations)
        ]
        sizes = {
            "num_pages": len(requests) * (_CONTEXT // _PAGE_TOKENS) + 1,
            "num_slots": len(requests) + 1,
            "prefill_tokens": 2048,
            "max_context": _CONTEXT,
        }
        run = make_worker_run(
            [self.stage],
            placing=Placing(
                topology=make_topology([len(self.stage.blocks)]),
                worker=0,
                connect=no_wire,
                note=lambda *said: None,
                poison=True,
            ),
            limits=make_limits(**sizes),
            kv_dtype=self._dtype,
            device=CPU,
        )
        try:
            loop = Loop(run, **sizes)
            loop.add(*requests)
            with torch.inference_mode():
                loop.finish()
        finally:
            run.close()
        return [self._text(loop.answers[request.id].tokens) for request in requests]

    def _text(self, tokens: list[int]) -> str:
        written = [token for token in tokens if token not in self._eos]
        return str(self._tokenizer.decode(written, skip_special_tokens=False))
