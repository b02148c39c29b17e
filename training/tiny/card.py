"""The model's card: README.md beside the weights, from `model_card.md` and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from training.tiny.data import arithmetic
from training.tiny.data.prose import BOOKS
from training.tiny.export import load
from training.tiny.losses import DRAFT_STEPS

_TEMPLATE = Path(__file__).with_name("model_card.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """`figures` by name, some of them with a least value in `wanted`. `count` conversations of each
    kind were asked, and `few` documents taken for what concerns drafts and free prose, of a server
    in `dtype`. `option` is what the command needs to measure the same again."""

    figures: Mapping[str, float]
    wanted: Mapping[str, float]
    count: int
    few: int
    dtype: str
    option: str

    def table(self) -> str:
        rows = (
            f"| {name} | {value:.3f} | {self.wanted.get(name, '')} |"
            for name, value in self.figures.items()
        )
        return "\n".join(rows)


def write_card(folder: Path, measured: Measured) -> None:
    model, _ = load(folder)
    text = _TEMPLATE.read_text(encoding="utf-8").format(
        **asdict(model.shape),
        num_parameters=sum(parameter.numel() for parameter in model.parameters()) / 1e6,
        num_books=len(BOOKS),
        books=", ".join(name.replace("_", " ").title() for name in BOOKS),
        count=measured.count,
        few=measured.few,
        dtype=measured.dtype,
        least_steps=arithmetic.LEAST_STEPS,
        most_steps=arithmetic.MOST_STEPS,
        least=arithmetic.LEAST,
        most=arithmetic.MOST,
        largest_factor=arithmetic.LARGEST_FACTOR,
        largest_small_factor=arithmetic.LARGEST_SMALL_FACTOR,
        largest_product=arithmetic.LARGEST_PRODUCT,
        draft_steps=DRAFT_STEPS,
        table=measured.table(),
        option=measured.option,
    )
    (folder / "README.md").write_text(text, encoding="utf-8")
