"""Before each real verdict every gate is fed a case that it must not pass."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import ValidationError

from runner.errors import EvidenceError
from runner.gates.base import Gate, GateInput
from runner.model.run import SelfTest
from runner.model.verdict import Status
from runner.paths import source_root

CASES = source_root() / "tests" / "gates"
"""Of this checkout: whoever judges brings the cases along."""


@cache
def must_fail(gate: str) -> frozenset[str]:
    """Names of the cases that the gate must not pass; none for a gate that is not known."""
    return frozenset(path.parent.name for path in (CASES / gate).glob("*_fail/input.json"))


def shown(gate: Gate, case: str) -> Status:
    """What the gate says about one of its cases. Raises EvidenceError where it cannot be read."""
    return gate.judge(_read(CASES / gate.NAME / case / "input.json")).status


@cache
def _read(path: Path) -> GateInput:
    try:
        return GateInput.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise EvidenceError("a must-fail case cannot be read", where=str(path), found=str(error)) from error


def run(gate: Gate, folder: Path) -> SelfTest:
    """The gate's answer to the first must-fail case in ``folder`` (``<folder>/<gate>/<case>_fail/input.json``).

    A status of PASS means that this gate decides nothing and nothing may be signed. Raises EvidenceError where there is
    no case or where it cannot be read.
    """
    cases = sorted((folder / gate.NAME).glob("*_fail/input.json"))
    if not cases:
        raise EvidenceError(
            "the gate has no case that must fail",
            where=str(folder / gate.NAME),
            expected="<case>_fail/input.json",
            found="none",
            next_step="add the case; a gate that was never seen to fail judges nothing",
        )
    given = _read(cases[0])
    return SelfTest(gate=gate.NAME, version=gate.VERSION, case=cases[0].parent.name, status=gate.judge(given).status)
