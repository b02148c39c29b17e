"""Text on both sides of token ids: tokenise, render prompts, detokenise, stop strings. No torch."""
