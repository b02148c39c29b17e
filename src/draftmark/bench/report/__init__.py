"""What a person reads of a run: one page, a table for a document, runs side by side."""
