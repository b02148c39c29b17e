"""Where prompts come from: random ids, windows of a corpus, and files of questions."""
