"""Each gate is shown one case that it must refuse before it sees the real samples."""

from __future__ import annotations

from runner.errors import EvidenceError
from runner.gates import selftest
from runner.gates.registry import gate
from runner.model.verdict import Status
from runner.steps.state import Run


def self_test(run: Run) -> Run:
    """Raises EvidenceError where a gate has no must-fail case or passes it: such a gate signs nothing."""
    shown = tuple(selftest.run(gate(planned.name, planned.version), selftest.CASES) for planned in run.plan.gates)
    for one in shown:
        if one.status is Status.PASS:
            raise EvidenceError(
                f"gate {one.gate}@{one.version} passes a case it must fail",
                where=str(selftest.CASES / selftest.folder_of(one.gate, one.version) / one.case),
                expected="anything but PASS",
                found="PASS",
                next_step="mend the gate; nothing it says counts until then",
            )
    return run.with_outcome(self_tests=shown)
