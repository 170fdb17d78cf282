"""Before each real verdict every gate is fed a case that it must not pass."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import ValidationError

from runner.errors import EvidenceError
from runner.gates.base import Gate, GateInput
from runner.gates.registry import gate
from runner.model.run import SelfTest
from runner.model.verdict import Status

CASES = Path(__file__).resolve().parents[2] / "tests" / "gates"
"""Of this checkout: whoever judges brings the cases along."""


def folder_of(name: str, version: int) -> str:
    """Of a gate's cases: its name, and from version 2 on ``name@version``."""
    return name if version == 1 else f"{name}@{version}"


@cache
def must_fail(name: str, version: int) -> frozenset[str]:
    """Names of the cases that the gate must not pass; none for a gate that is not known."""
    return frozenset(path.parent.name for path in (CASES / folder_of(name, version)).glob("*_fail/input.json"))


@cache
def shown(name: str, version: int, case: str) -> Status:
    """What a gate says about one of its cases.

    Raises EvidenceError where the case cannot be read, InputError where there is no such gate.
    """
    return gate(name, version).judge(_read(CASES / folder_of(name, version) / case / "input.json")).status


@cache
def _read(path: Path) -> GateInput:
    try:
        return GateInput.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise EvidenceError("a must-fail case cannot be read", where=str(path), found=str(error)) from error


def run(known: Gate, folder: Path) -> SelfTest:
    """The gate's answer to the first must-fail case in ``folder`` (``<folder>/<gate>/<case>_fail/input.json``).

    A status of PASS means that this gate decides nothing and nothing may be signed. Raises EvidenceError where there is
    no case or where it cannot be read.
    """
    own = folder / folder_of(known.NAME, known.VERSION)
    cases = sorted(own.glob("*_fail/input.json"))
    if not cases:
        raise EvidenceError(
            "the gate has no case that must fail",
            where=str(own),
            expected="<case>_fail/input.json",
            found="none",
            next_step="add the case; a gate that was never seen to fail judges nothing",
        )
    given = _read(cases[0])
    return SelfTest(gate=known.NAME, version=known.VERSION, case=cases[0].parent.name, status=known.judge(given).status)
