"""The BPE vocabulary of `tiny`: the family's special tokens, our own merges.

Text is cut before merging much as the family cuts it, but no word is joined to a sign before it,
and an inner capital begins a new word: the words of bury_marathon, buryMarathon, "marathon and
=marathon are the same tokens, which a model this small would have to learn one by one.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.trainers import BpeTrainer

from training.tiny.shape import SPECIAL_TOKENS

# Contractions, words with the space before them, single digits, runs of signs, line ends, spaces.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)(?![\p{L}\p{M}])"
    r"| ?[\p{Lu}\p{Lt}]?[\p{Ll}\p{Lm}\p{Lo}\p{M}]+| ?[\p{Lu}\p{Lt}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Merges from `texts`, the special tokens as the last ids of `vocab_size`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens(
        [
            AddedToken(token, special=token.startswith("<|"), normalized=False)
            for token in SPECIAL_TOKENS
        ]
    )
    if tokenizer.get_vocab_size() != vocab_size:
        raise ValueError(
            f"the texts gave a vocabulary of {tokenizer.get_vocab_size()}, not of {vocab_size}"
        )
    return tokenizer
