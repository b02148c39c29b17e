"""The BPE vocabulary of `tiny`: the family's pre-tokenizer and special tokens, our own merges."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.trainers import BpeTrainer

from training.tiny.shape import SPECIAL_TOKENS

# How the family cuts text before merging: contractions, words with the character before them, each
# digit alone, runs of signs, line ends, spaces.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
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
