"""Executes plans on one rank and decides nothing: packing, memory, stage run, sampling, results."""
