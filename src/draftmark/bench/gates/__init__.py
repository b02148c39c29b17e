"""Whether a run may be believed: each gate with what was seen, the limit, and what to do.

Unknown is not passed. Who accepts that a server does not tell waives the gate by its name, and the
row says so; a gate that failed cannot be waived.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum

import msgspec

from draftmark.bench.gates import conduct, repeats, stability, tokens
from draftmark.bench.gates.evidence import Evidence
from draftmark.bench.gates.repeats import Repeats, reproducibility
from draftmark.bench.result import Gate, GateKind, GateState
from draftmark.core.errors import ConfigError

__all__ = [
    "GATES",
    "REPEAT_GATES",
    "Evidence",
    "Repeats",
    "Standing",
    "check_waivers",
    "repeat_gates",
    "reproducibility",
    "run_gates",
    "standing",
    "why_invalid",
]

GATES = {check.id: check for check in (*tokens.CHECKS, *conduct.CHECKS, *stability.CHECKS)}
# Of several runs of one load.
REPEAT_GATES = {check.id: check for check in repeats.CHECKS}


class Standing(StrEnum):
    """Invalid outranks fail: a run that was made wrongly says nothing about the server."""

    PASS = "pass"
    FAIL = "fail"
    INVALID = "invalid"


def run_gates(evidence: Evidence, *, waive: Collection[str] = ()) -> list[Gate]:
    """Every gate that has something to say of such a run; `waive` as `check_waivers` has it."""
    return _rows([check.gate(evidence) for check in GATES.values()], waive)


def repeat_gates(repeats: Repeats, *, waive: Collection[str] = ()) -> list[Gate]:
    """Of a load that was repeated, beside those of each run."""
    return _rows([check.gate(repeats) for check in REPEAT_GATES.values()], waive)


def check_waivers(waive: Collection[str]) -> None:
    """Before a run. Raises `ConfigError` for a gate that does not exist."""
    known = [*GATES, *REPEAT_GATES]
    unknown = sorted(set(waive) - set(known))
    if unknown:
        raise ConfigError(
            f"no gate is called {', '.join(unknown)}; there are {', '.join(known)}", param="waive"
        )


def standing(gates: Sequence[Gate]) -> Standing:
    if why_invalid(gates):
        return Standing.INVALID
    has_failed = any(gate.state is GateState.FAIL for gate in gates)
    return Standing.FAIL if has_failed else Standing.PASS


def why_invalid(gates: Sequence[Gate]) -> list[Gate]:
    """Failed gates of the method, and unknown ones of any kind: nothing is said, neither good nor
    bad."""
    return [
        gate
        for gate in gates
        if gate.state is GateState.UNKNOWN
        or (gate.state is GateState.FAIL and gate.kind is GateKind.METHOD)
    ]


def _rows(found: Iterable[Gate | None], waive: Collection[str]) -> list[Gate]:
    rows = [row for row in found if row is not None]
    return [_waived(row) if row.id in waive else row for row in rows]


def _waived(gate: Gate) -> Gate:
    is_unknown = gate.state is GateState.UNKNOWN
    return msgspec.structs.replace(gate, state=GateState.WAIVED) if is_unknown else gate
