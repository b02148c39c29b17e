"""What each kind of server tells about itself, and which fields of a request it takes."""

from __future__ import annotations

from draftmark.bench.adapters.base import Accepts, Adapter
from draftmark.bench.adapters.draftmark import DraftmarkAdapter
from draftmark.bench.adapters.openai import OpenaiAdapter
from draftmark.bench.adapters.sglang import SglangAdapter
from draftmark.bench.adapters.vllm import VllmAdapter
from draftmark.bench.control import Control
from draftmark.core.errors import ConfigError

__all__ = ["ADAPTERS", "Accepts", "Adapter", "detect", "make_adapter"]

ADAPTERS: dict[str, type[Adapter]] = {
    kind.name: kind for kind in (DraftmarkAdapter, VllmAdapter, SglangAdapter, OpenaiAdapter)
}


def make_adapter(
    name: str,
    url: str,
    *,
    model: str | None = None,
    api_key: str | None = None,
    pid: int | None = None,
) -> Adapter:
    """`name` of `ADAPTERS`, or `auto`, which asks the server. `pid` is the server's process, where
    it runs on this machine. Raises `ConfigError`, and `Unavailable` when nothing answers."""
    control = Control(url, api_key=api_key)
    if name == "auto":
        name = detect(control)
    if name not in ADAPTERS:
        raise ConfigError(
            f"--adapter must be auto, {', '.join(ADAPTERS)}, not {name}", param="adapter"
        )
    return ADAPTERS[name](control, model=model, pid=pid)


def detect(control: Control) -> str:
    """By what only one kind of server has. draftmark goes first: it has vLLM's names as well."""
    figures = control.text("/metrics") or ""
    if "\ndraftmark_" in figures:
        return DraftmarkAdapter.name
    if "\nvllm:" in figures:
        return VllmAdapter.name
    if "\nsglang:" in figures:
        return SglangAdapter.name
    listing = control.json("/v1/models")
    cards = listing.get("data") if isinstance(listing, dict) else None
    owners = {str(card.get("owned_by")) for card in cards or [] if isinstance(card, dict)}
    return next((name for name in ("vllm", "sglang") if name in owners), OpenaiAdapter.name)
