"""Waivers: how long one lets a gate stand open, and what it is never for."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from runner import decide, ledger
from runner.attest.keys import PrivateKey
from runner.errors import InputError, TrustError
from tests.runner.records import START, announce, make_run, publish
from tests.runner.test_canon import R1, at, desk, section, text_of

pytestmark = pytest.mark.usefixtures("rate_gate")


def test_a_waiver_with_a_reason_and_an_end_lets_it_through_until_then(
    workspace: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path
) -> None:
    publish(workspace, demo_runner, make_run(rates=("10", "10.2")), tmp_path / "s")
    decide.waive(desk(workspace, demo_adopter, 1), "r1", "speed", "saves memory", at(3))
    with pytest.raises(TrustError, match="expired"):
        decide.adopt(desk(workspace, demo_adopter, 4), "r1", "late")
    decide.adopt(desk(workspace, demo_adopter, 2), "r1", "in time")
    standing = section(text_of(workspace), "Standing")
    assert f"- waiver of speed until {at(3)}: saves memory" in standing
    assert "gate speed is waived" in section(text_of(workspace), "Open items")
    announce(workspace, make_run(run="r8", started=START + timedelta(hours=2.5)), demo_runner)
    assert "Run [r1]" in section(text_of(workspace), "Standing"), "its time is not over by any statement"
    announce(workspace, make_run(run="r9", started=START + timedelta(hours=5)), demo_runner)
    after = text_of(workspace)
    assert "Run [r1]" not in section(after, "Standing") and "waived" not in section(after, "Open items")
    assert f"a time that is over: it expired on {at(3)}" in section(after, "Adoptions that do not count")
    assert R1 in section(after, "Pending")
    with pytest.raises(TrustError, match="expired"):
        decide.adopt(desk(workspace, demo_adopter, 6), "r1", "once more")


def test_a_waiver_taken_back_no_longer_helps(
    workspace: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path
) -> None:
    publish(workspace, demo_runner, make_run(rates=("10", "9")), tmp_path / "s")
    waiver = decide.waive(desk(workspace, demo_adopter, 1), "r1", "speed", "saves memory", at(9))
    decide.adopt(desk(workspace, demo_adopter, 2), "r1", "in time")
    decide.revoke(desk(workspace, demo_adopter, 3), waiver.name.removesuffix(ledger.SUFFIX), "not after all")
    text = text_of(workspace)
    assert "Run [r1]" not in section(text, "Standing")
    assert "gate speed is FAIL" in section(text, "Adoptions that do not count")


@pytest.mark.parametrize(("gate", "until"), [("needle", 9), ("speed", 0.5)])
def test_a_waiver_of_nothing_or_for_no_time_is_refused(
    *, workspace: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path, gate: str, until: float
) -> None:
    publish(workspace, demo_runner, make_run(rates=("10", "9")), tmp_path / "s")
    with pytest.raises(InputError):
        decide.waive(desk(workspace, demo_adopter, 1), "r1", gate, "why not", at(until))
