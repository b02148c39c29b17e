"""draftmark: an LLM serving engine that drafts, and the measurements that mark it."""
