"""A scripted server that does what it is told and notes when it really did it: the truth that the
client is measured against. `python -m draftmark.bench.truth` runs one."""
