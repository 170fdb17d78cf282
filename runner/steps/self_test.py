"""Each gate is shown one case that it must refuse before it sees the real samples."""

from __future__ import annotations

from pathlib import Path

from runner.errors import EvidenceError
from runner.gates.base import GateInput
from runner.gates.registry import gate
from runner.model.plan import PlannedGate
from runner.model.run import SelfTest
from runner.model.verdict import Status
from runner.paths import source_root
from runner.steps.state import Run

CASES = Path("tests/gates")


def self_test(run: Run) -> Run:
    """Raises EvidenceError where a gate has no must-fail case or passes it: such a gate signs nothing."""
    return run.with_outcome(self_tests=tuple(shown_to_fail(planned) for planned in run.plan.gates))


def shown_to_fail(planned: PlannedGate) -> SelfTest:
    """What one gate answers to the first of its must-fail cases."""
    folder = source_root() / CASES / planned.name
    cases = sorted(folder.glob("*_fail/input.json"))
    if not cases:
        raise EvidenceError("a gate without a must-fail case", where=str(folder), expected="*_fail/input.json")
    given = GateInput.model_validate_json(cases[0].read_bytes())
    verdict = gate(planned.name, planned.version).judge(given)
    case = cases[0].parent.name
    if verdict.status is Status.PASS:
        raise EvidenceError(
            f"gate {planned.name}@{planned.version} passes a case it must fail",
            where=str(cases[0]),
            expected="anything but PASS",
            found="PASS",
            next_step="mend the gate; nothing it says counts until then",
        )
    return SelfTest(gate=planned.name, version=planned.version, case=case, status=verdict.status)
