"""Which tokens are few enough for the compiled kernels; without numba, which may be absent."""

from __future__ import annotations

from torch import Tensor

# Of an expert on average, on two cores with AMX (benchmarks/experts.py). bf16: of 0.5 MB experts 8
# rows took 0.8 of the time of `torch` and 16 as long; of 3 MB experts 4 rows 0.8 and 8 as long.
# fp32: 0.7 at 16 rows of any.
_MEAN_ROWS, _MEAN_ROWS_OF_LARGE = 12, 5
_LARGE_WEIGHTS = 1 << 19


def are_few(num_slots: int, gate_up: Tensor) -> bool:
    """Of `num_slots` chosen experts in all, the weights [E, 2 I, h]."""
    num_experts, double_size, hidden_size = gate_up.shape
    is_large = double_size * hidden_size * 3 // 2 >= _LARGE_WEIGHTS and gate_up.itemsize < 4
    return num_slots < (_MEAN_ROWS_OF_LARGE if is_large else _MEAN_ROWS) * num_experts


def workspace_bytes(num_experts: int, intermediate_size: int) -> int:
    """The act of all slots, in fp32."""
    return _MEAN_ROWS * num_experts * intermediate_size * 4
