"""Ops with explicit arguments, one folder each: `reference.py` judges, the others are fast.

An op's `__init__` states the contract (shapes, dtypes, who writes what) and dispatches on the
`backend` argument. Host reads of device values happen nowhere but here. Nothing of ours is
imported from outside this folder.
"""
