"""What a model file gives beside its modules: names, and the edges of its configuration.

Helpers here read a Hugging Face configuration once, at the edge, and refuse by name whatever would
change the maths and is not built.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from draftmark.core.errors import ModelError
from draftmark.kernels.rope import RopeScaling, yarn_attention_factor

Take = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Piece:
    """What fills one block of a parameter (named in the whole stage): a checkpoint tensor, or what
    `take` takes of it."""

    parameter: str
    block: str = ""
    take: Take | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint tensor and where it goes. `shape` is what it must be, where it is not that of
    its only block."""

    pieces: tuple[Piece, ...]
    shape: tuple[int, ...] | None = None

    @classmethod
    def whole(cls, parameter: str, block: str = "") -> Source:
        return cls((Piece(parameter, block),))

    def under(self, prefix: str) -> Source:
        """The same, of parameters below `prefix`."""
        pieces = [replace(piece, parameter=prefix + piece.parameter) for piece in self.pieces]
        return replace(self, pieces=tuple(pieces))


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """`used` says what each checkpoint tensor fills; `ignored` are patterns of tensors that are
    left out on purpose."""

    used: Mapping[str, Source]
    ignored: tuple[re.Pattern[str], ...] = ()

    def is_ignored(self, tensor: str) -> bool:
        return any(pattern.fullmatch(tensor) for pattern in self.ignored)


def decoder_names(
    layers: Sequence[Mapping[str, Source]],
    *,
    tied_head: bool,
    prefix: str = "model.",
    ignored: tuple[re.Pattern[str], ...] = (),
) -> Names:
    """`layers` has the tensors of each layer; embedding, layers, norm and head are named alike in
    every family. A tied head may be saved all the same, and is then ignored."""
    used = {
        f"{prefix}embed_tokens.weight": Source.whole("embedding.weight"),
        f"{prefix}norm.weight": Source.whole("norm.weight"),
    }
    for n, layer in enumerate(layers):
        for tensor, source in layer.items():
            used[f"{prefix}layers.{n}.{tensor}"] = source.under(f"layers.{n}.")
    if tied_head:
        ignored += (re.compile(r"lm_head\.weight"),)
    else:
        used["lm_head.weight"] = Source.whole("head.weight")
    return Names(used=used, ignored=ignored)


def whole_sources(names: Mapping[str, tuple[str, str]]) -> dict[str, Source]:
    """From a table of checkpoint tensor -> (parameter, block)."""
    return {tensor: Source.whole(*place) for tensor, place in names.items()}


# Keys that change the maths of a dense decoder, with the values that leave it as we build it.
# Families that use them have other model types; a checkpoint of ours that sets one is not ours.
_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "hidden_act": ("silu", "swish"),
    "pretraining_tp": (None, 1),
    "quantization_config": (None,),
    "use_sliding_window": (None, False),
    "partial_rotary_factor": (None, 1, 1.0),
    "rope_interleaved": (None, False),
    "attention_multiplier": (None,),
    "embedding_multiplier": (None, 1, 1.0),
    "residual_multiplier": (None, 1, 1.0),
    "logits_scaling": (None, 1, 1.0),
    "logit_scale": (None, 1, 1.0),
    "final_logit_softcapping": (None,),
    "attn_logit_softcapping": (None,),
    "query_pre_attn_scalar": (None,),
    "clip_qkv": (None,),
    "no_rope_layers": (None, []),
    "no_rope_layer_interval": (None,),
    "num_experts": (None, 0),
    "num_local_experts": (None, 0),
    "n_routed_experts": (None, 0),
    "num_nextn_predict_layers": (None, 0),
    "qk_layernorm": (None, False),
    "use_qk_norm": (None, False),
    "is_decoder": (None, False, True),
    "add_cross_attention": (None, False),
    "cross_attention_hidden_size": (None,),
    "parallel_attn": (None, False),
}


def refuse_unbuilt(
    raw: Mapping[str, Any],
    *,
    neutral: Mapping[str, tuple[object, ...]],
    read: Collection[str] = (),
    layer_types: Collection[str] = ("full_attention",),
) -> None:
    """Raise `ModelError` naming the first key of config.json that asks for what is not built.

    `neutral` adds a family's own keys, with the values that change nothing; keys of `read` are
    taken into account by the family.
    """
    for key, harmless in {**_NEUTRAL, **neutral}.items():
        value = raw.get(key)
        if key not in read and value not in harmless:
            shown = value if not isinstance(value, dict) else value.get("quant_method", value)
            raise ModelError(f"config.json has {key} = {shown!r}, which is not built", param=key)
    found = set(raw.get("layer_types") or layer_types)
    if not found <= set(layer_types):
        unbuilt = ", ".join(sorted(found - set(layer_types)))
        raise ModelError(
            f"config.json has layer_types {unbuilt}, which are not built", param="layer_types"
        )


_ROPE_KEYS: Mapping[str, frozenset[str]] = {
    "default": frozenset(),
    "linear": frozenset({"factor"}),
    "llama3": frozenset(
        {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}
    ),
    "yarn": frozenset(
        {
            "factor",
            "original_max_position_embeddings",
            "beta_fast",
            "beta_slow",
            "attention_factor",
            "mscale",
            "mscale_all_dim",
            "truncate",
        }
    ),
}


def read_rope(
    parameters: Mapping[str, Any], *, max_context: int, read: Collection[str] = ()
) -> tuple[float, RopeScaling]:
    """(theta, scaling) from a configuration's rope_parameters; raises `ModelError`. Keys of `read`
    are taken into account by the family."""
    kind = parameters["rope_type"]
    if kind not in _ROPE_KEYS:
        raise ModelError(
            f"rope type {kind!r} is not built; built: {', '.join(_ROPE_KEYS)}", param="rope_type"
        )
    given = {k: value for k, value in parameters.items() if value is not None and k not in read}
    theta = float(given.pop("rope_theta"))
    del given["rope_type"]
    # The older spelling of rope_type, kept by some checkpoints.
    given.pop("type", None)
    if given.pop("partial_rotary_factor", 1.0) != 1.0:
        raise ModelError("partial rotary embedding is not built", param="partial_rotary_factor")
    unknown = set(given) - _ROPE_KEYS[kind]
    if kind != "default" and unknown:
        raise ModelError(f"rope type {kind!r} has unknown {', '.join(sorted(unknown))}")
    return theta, _scaling(kind, given, max_context)


def _scaling(kind: str, given: Mapping[str, Any], max_context: int) -> RopeScaling:
    if kind == "default":
        return RopeScaling()
    factor = float(given["factor"])
    if kind == "linear":
        return RopeScaling(kind=kind, factor=factor)
    original = int(given.get("original_max_position_embeddings", max_context))
    if kind == "llama3":
        return RopeScaling(
            kind=kind,
            factor=factor,
            original_context=original,
            low_freq_factor=float(given["low_freq_factor"]),
            high_freq_factor=float(given["high_freq_factor"]),
        )
    return RopeScaling(
        kind=kind,
        factor=factor,
        original_context=original,
        beta_fast=float(given.get("beta_fast", 32.0)),
        beta_slow=float(given.get("beta_slow", 1.0)),
        truncate=bool(given.get("truncate", True)),
        attention_factor=_yarn_attention(given, factor),
    )


def _yarn_attention(given: Mapping[str, Any], factor: float) -> float:
    if "attention_factor" in given:
        return float(given["attention_factor"])
    if given.get("mscale") and given.get("mscale_all_dim"):
        whole = yarn_attention_factor(factor, float(given["mscale"]))
        return whole / yarn_attention_factor(factor, float(given["mscale_all_dim"]))
    return yarn_attention_factor(factor)
