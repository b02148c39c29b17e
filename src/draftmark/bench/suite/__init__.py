"""Functional cases kept as data: asked one by one, judged by their own rules, one row each."""

from __future__ import annotations

from draftmark.bench.suite.baseline import SuiteComparison, compare_suites, no_new_failure
from draftmark.bench.suite.case import Case, choose_cases, read_cases, shipped_cases
from draftmark.bench.suite.runner import SuiteResult, SuiteRow, read_suite, run_suite

__all__ = [
    "Case",
    "SuiteComparison",
    "SuiteResult",
    "SuiteRow",
    "choose_cases",
    "compare_suites",
    "no_new_failure",
    "read_cases",
    "read_suite",
    "run_suite",
    "shipped_cases",
]
