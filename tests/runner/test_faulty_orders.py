"""None of the four faulty orders can be adopted, whatever is waived: over their reports as they are committed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from runner import canon, decisions, ledger
from runner.attest.keys import PrivateKey
from runner.attest.statement import Signed, sign
from runner.attest.trust import repository_file, signer_line, trust_key
from runner.decide import Desk, adopt, waive
from runner.errors import InputError, TrustError
from runner.gates.registry import all_gates, waivable
from runner.model.adoption import Adoption, ReportName, Waiver
from runner.model.report import ReportPredicate
from runner.model.verdict import Status
from runner.paths import source_root

FAULTY = ("mini-half-k", "mini-one-rank", "mini-prefill-only", "mini-silent-fallback")
NOW, LATER, UNTIL = "2098-01-01T00:00:00Z", "2098-01-01T00:00:01Z", "2099-01-01T00:00:00Z"
"""After whatever is committed."""
PROOFS = {
    "pack",
    "product",
    "claims",
    "resolved",
    "engaged",
    "perturbation",
    "watermark",
    "knock-out",
    "parity",
    "kld",
    "restore",
    "sanitizer",
    "launches",
    "rank-skew",
}


@pytest.fixture
def adopter() -> PrivateKey:
    return PrivateKey.generate()


@pytest.fixture
def workspace(tmp_path: Path, adopter: PrivateKey) -> Path:
    """The committed reports with their ledger, and a person who may adopt."""
    for name in ("reports", "canon"):
        shutil.copytree(source_root() / name, tmp_path / name)
    (tmp_path / "orders").mkdir()
    trust_key(repository_file(tmp_path), signer_line("adopter", "demo", adopter.public))
    return tmp_path


def faulty(desk: Desk) -> list[tuple[Signed, ReportPredicate]]:
    found = [pair for pair in desk.ledger.of(ReportPredicate) if pair[1].order.name in FAULTY]
    assert {report.order.name for _, report in found} == set(FAULTY)
    return found


def sign_all(desk: Desk, key: PrivateKey) -> dict[str, list[str]]:
    """A waiver of every gate of every report, by whoever does not ask this code; their digests by run."""
    signed: dict[str, list[str]] = {}
    for entry, report in faulty(desk):
        name = ReportName(run=report.run, order=report.order.name, digest=entry.digest)
        for gate in report.gates:
            made = Waiver(created_at=NOW, parents=(), report=name, gate=gate.name, reason="so", expires_at=UNTIL)
            path = ledger.append(desk.workspace, ledger.ADOPTIONS, sign(made, {"report": entry.digest}, key))
            signed.setdefault(report.run, []).append(path.name.removesuffix(ledger.SUFFIX))
    return signed


def test_no_faulty_order_is_adopted_with_every_gate_waived(workspace: Path, adopter: PrivateKey) -> None:
    waived = sign_all(Desk.open(workspace, adopter, NOW), adopter)
    desk = Desk.open(workspace, adopter, LATER)
    for entry, report in faulty(desk):
        with pytest.raises(TrustError, match="which nobody can waive"):
            adopt(desk, report.run, "anyway")
        forced = Adoption(
            created_at=LATER,
            parents=(),
            result="ADOPTED",
            report=ReportName(run=report.run, order=report.order.name, digest=entry.digest),
            seat=report.seat.name,
            scope="standing",
            waivers=tuple(waived[report.run]),
            reason="anyway",
        )
        ledger.append(workspace, ledger.ADOPTIONS, sign(forced, {"report": entry.digest}, adopter))
    after = Desk.open(workspace, adopter, LATER)
    assert decisions.standing(after.ledger) == []
    told = [line for line in canon.render(after.ledger).splitlines() if "which nobody can waive" in line]
    assert len(told) == len(faulty(after))


def test_of_a_faulty_order_only_a_shortfall_can_be_waived(workspace: Path, adopter: PrivateKey) -> None:
    taken = set()
    for _, report in faulty(Desk.open(workspace, adopter, NOW)):
        for gate in report.gates:
            if gate.verdict is Status.PASS:
                continue
            try:
                waive(Desk.open(workspace, adopter, NOW), report.run, gate.name, "so", UNTIL)
            except InputError as error:
                assert "nobody can waive" in error.what
            else:
                taken.add((report.order.name, gate.name, gate.verdict))
    assert ("mini-half-k", "ppl-decode", Status.FAIL) in taken
    assert {(order, verdict) for order, _, verdict in taken} == {("mini-half-k", Status.FAIL)}
    assert not PROOFS & {gate for _, gate, _ in taken}


def test_what_proves_is_never_waived_and_an_unknown_gate_neither() -> None:
    assert {gate.NAME for gate in all_gates()} >= PROOFS
    assert not [name for name in (*PROOFS, "not-a-gate") if waivable(name)]
    assert all(waivable(name) for name in ("speed", "needle", "ppl-decode", "ppl-prefill"))
