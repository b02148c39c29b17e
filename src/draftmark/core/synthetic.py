"""What synthetic acceptance is called wherever its results go, so that none pass for real ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


def rates_of(record: Mapping[str, object]) -> tuple[float, ...]:
    """The rates in a ready record or an answer; none where acceptance is real."""
    return msgspec.convert(record.get("synthetic_acceptance", ()), tuple[float, ...])


def rates_text(rates: Sequence[float]) -> str:
    """As the flag takes them."""
    return ",".join(f"{rate:g}" for rate in rates)


def synthetic_mark(rates: Sequence[float]) -> str:
    """One line for people; empty where acceptance is real."""
    if not rates:
        return ""
    return f"SYNTHETIC ACCEPTANCE {rates_text(rates)}: coins accept drafts, the text means nothing"
