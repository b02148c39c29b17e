"""Drafts of tokens: where they come from, and which of them are accepted."""
