"""A key whose time ends before what it is to sign: said before any seat time, and no file that spoils a ledger."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from runner import canon
from runner.attest.trust import load_trust, repository_file, signer_line, trust_key
from runner.cli import run as command
from runner.errors import StateError
from runner.plan import seconds_of
from runner.session import open_run
from runner.steps.seal import runner_key, seal
from runner.steps.state import Run, Silent
from runner.workflow import STEPS, execute
from tests.runner.flow_orders import gate_order, write_order

FAR = datetime(9999, 1, 1, tzinfo=UTC)


def trusted_until(home: Path, end: datetime) -> None:
    """The repository trusts this user's key until then, in one more line."""
    line = signer_line("runner", "demo", runner_key().public, valid_before=end)
    trust_key(repository_file(home / "workspace"), line)


def not_yet_signed(_run: Run) -> int:
    """In place of the last step."""
    return 0


@pytest.mark.parametrize("share", [-1.0, 0.5])
def test_a_run_that_could_not_be_signed_is_not_begun(home: Path, share: float) -> None:
    order = write_order(home, gate_order())
    wanted = seconds_of(seal(open_run(order, progress=Silent())).sealed.plan)
    announced = set((home / "workspace/reports/ledger").iterdir())
    trusted_until(home, datetime.now(UTC) + timedelta(seconds=wanted * share))
    with pytest.raises(StateError, match="no longer when it is to sign"):
        seal(open_run(order, progress=Silent()))
    assert set((home / "workspace/reports/ledger").iterdir()) == announced
    trusted_until(home, FAR)
    seal(open_run(order, progress=Silent()))


def test_a_key_that_ends_meanwhile_signs_no_report_and_the_run_is_finished_later(home: Path) -> None:
    order = write_order(home, gate_order())
    begun = open_run(order, progress=Silent())
    trusted_until(home, FAR)
    assert execute(begun, (*STEPS[:-1], not_yet_signed)) == 0
    lines = repository_file(home / "workspace")
    lines.write_text(lines.read_text().replace("99990101", "20260101"))
    with pytest.raises(StateError, match="no longer when it is to sign") as refused:
        STEPS[-1](begun)
    assert "valid until 2026-01-01T00:00:00+00:00" in refused.value.found
    assert not list((home / "workspace/reports").glob("*/*/report.dsse.json"))
    trusted_until(home, FAR)
    assert command(["execute", str(order), "--resume", begun.name, "--quiet"]) in (0, 2)
    canon.generate(home / "workspace", load_trust(home / "workspace", user=False))


def test_a_key_that_the_repository_does_not_know_signs_for_its_own_user(home: Path) -> None:
    seal(open_run(write_order(home, gate_order()), progress=Silent()))
    assert len(list((home / "workspace/reports/ledger").iterdir())) == 1
