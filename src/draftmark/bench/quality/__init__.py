"""Whether answers are right: sets of problems, compared in pairs, and seven quick prompts."""

from __future__ import annotations

from draftmark.bench.quality.paired import Paired, compare_paired
from draftmark.bench.quality.problems import Problem, read_arithmetic, read_gsm8k, read_problems
from draftmark.bench.quality.quick import QuickResult, run_quick
from draftmark.bench.quality.run import (
    QualityResult,
    check_reference,
    compare_quality,
    read_quality,
    run_quality,
)

__all__ = [
    "Paired",
    "Problem",
    "QualityResult",
    "QuickResult",
    "check_reference",
    "compare_paired",
    "compare_quality",
    "read_arithmetic",
    "read_gsm8k",
    "read_problems",
    "read_quality",
    "run_quality",
    "run_quick",
]
