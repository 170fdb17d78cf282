"""A report that ``verify`` refuses decides nothing: neither what another measured, nor what somebody announced."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from runner import decide, ledger
from runner.attest.keys import PrivateKey
from runner.attest.statement import sign
from runner.attest.trust import repository_file, signer_line, trust_key
from runner.counts import refusals
from runner.errors import TrustError
from runner.ledger import LEDGER, Ledger
from runner.model.adoption import Observation, ReportName, Reproduction
from runner.model.report import ReportPredicate
from runner.reproduction import assurance_level, shape
from tests.runner.records import START, announce, digest_of, make_run, publish, trust_of
from tests.runner.test_canon import at, desk, section, text_of

pytestmark = pytest.mark.usefixtures("rate_gate")


@pytest.fixture
def second(workspace: Path) -> PrivateKey:
    """Another runner's key."""
    key = PrivateKey.generate()
    trust_key(repository_file(workspace), signer_line("runner", "demo-second", key.public))
    return key


def book(workspace: Path) -> Ledger:
    return ledger.load(workspace, trust_of(workspace))


def reports(workspace: Path) -> dict[str, ReportPredicate]:
    return {report.run: report for _, report in book(workspace).of(ReportPredicate)}


def junk(workspace: Path, key: PrivateKey, like: str, run: str, **plan: str) -> None:
    """A signed file that was never measured: another report's figures, an intent and a seed of one's choice."""
    made = reports(workspace)[like]
    sealed = made.plan.model_copy(update={"intent": digest_of("nothing")} | plan)
    _put(workspace, key, made, run=run, created_at=at(0.5), plan=sealed)


def _put(workspace: Path, key: PrivateKey, made: ReportPredicate, **changes: Any) -> None:
    changed = made.model_copy(update={"parents": book(workspace).heads()} | changes)
    folder = workspace / "reports" / changed.order.name / changed.run
    folder.mkdir()
    (folder / "report.dsse.json").write_bytes(sign(changed, {"x": digest_of("x")}, key))
    found = book(workspace)
    entry = next(entry for entry, report in found.of(ReportPredicate) if report.run == changed.run)
    assert refusals([entry], found), "verify takes it"


def level(workspace: Path) -> str:
    found = book(workspace)
    return next(assurance_level(entry, found) for entry, report in found.of(ReportPredicate) if report.run == "r1")


@pytest.mark.parametrize(("rates", "came_out"), [(("10", "9"), "contradicted"), (("10.0", "20.5"), "reproduced")])
def test_what_another_found_is_not_erased_by_a_file_that_looks_older(
    *,
    workspace: Path,
    demo_runner: PrivateKey,
    second: PrivateKey,
    tmp_path: Path,
    rates: tuple[str, str],
    came_out: str,
) -> None:
    publish(workspace, demo_runner, make_run(run="r1"), tmp_path / "a")
    again = make_run(run="r2", seed=bytes(32), started=START + timedelta(hours=2), rates=rates)
    publish(workspace, second, again, tmp_path / "b")
    found = {entry.of(ReportPredicate).run: entry for entry, _ in book(workspace).of(ReportPredicate)}
    names = [ReportName(run=run, order="mini-lna2", digest=found[run].digest) for run in ("r1", "r2")]
    claim = Reproduction(
        created_at=at(3), parents=(), report=names[0], again=names[1], plan=shape(make_run().record.plan)
    )
    ledger.append(workspace, LEDGER, sign(claim, {"report": names[0].digest}, second))
    before = level(workspace)
    assert before == f"{came_out} by runner:demo-second in run r2"
    junk(workspace, demo_runner, "r2", "r0")
    assert level(workspace) == before


def test_a_failure_stays_one_where_it_is_copied(
    workspace: Path, demo_runner: PrivateKey, second: PrivateKey, tmp_path: Path
) -> None:
    """Of a copy that verifies nobody can tell which was first: what failed anew failed in both."""
    publish(workspace, demo_runner, make_run(run="r1"), tmp_path / "a")
    for hours, (run, key) in enumerate({"r0": demo_runner, "r2": second}.items(), 1):
        made = make_run(run=run, seed=bytes(32), started=START + timedelta(hours=hours), rates=("10", "9"))
        publish(workspace, key, made, tmp_path / run)
    assert level(workspace) == "contradicted by runner:demo-second in run r2"


def test_a_report_dated_ahead_is_contradicted_by_what_has_seen_it(
    workspace: Path, demo_runner: PrivateKey, second: PrivateKey, tmp_path: Path
) -> None:
    publish(workspace, demo_runner, make_run(run="r1", started=START + timedelta(hours=5)), tmp_path / "a")
    made = make_run(run="r2", seed=bytes(32), started=START + timedelta(hours=2), rates=("10", "9"))
    publish(workspace, second, made, tmp_path / "b")
    assert level(workspace) == "contradicted by runner:demo-second in run r2"


def test_a_label_that_was_never_measured_takes_no_adoption_away(
    workspace: Path, demo_runner: PrivateKey, second: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path
) -> None:
    publish(workspace, demo_runner, make_run(run="r1"), tmp_path / "a")
    decide.adopt(desk(workspace, demo_adopter, 1), "r1", "good")
    made = reports(workspace)["r1"]
    sealed = made.plan.model_copy(update={"intent": digest_of("nothing")})
    seat = made.seat.model_copy(update={"label": "real"})
    _put(workspace, second, made, run="r0", seat=seat, plan=sealed)
    assert "Run [r1]" in section(text_of(workspace), "Standing")
    seen = Observation(
        created_at=at(2),
        parents=book(workspace).heads(),
        seat=made.seat.name,
        label="real",
        subjects={},
        resolved={},
    )
    ledger.append_observation(workspace, seen, demo_runner)
    assert "is a GPU seat" in section(text_of(workspace), "Adoptions that do not count")


@pytest.mark.parametrize("whose", ["another's", "own, of another run"])
def test_an_intent_is_answered_by_its_own_report_alone(
    *, workspace: Path, demo_runner: PrivateKey, second: PrivateKey, tmp_path: Path, whose: str
) -> None:
    publish(workspace, demo_runner, make_run(run="r1"), tmp_path / "a")
    announced = make_run(run="r9", started=START + timedelta(hours=1))
    intent = announce(workspace, announced, second)
    junk(workspace, demo_runner if whose == "another's" else second, "r1", "r8", intent=intent)
    assert "| r9 |" in section(text_of(workspace), "Abandoned")


def test_nobody_keeps_an_honest_report_out_by_naming_its_intent(
    workspace: Path, demo_runner: PrivateKey, second: PrivateKey, tmp_path: Path
) -> None:
    publish(workspace, demo_runner, make_run(run="r1"), tmp_path / "a")
    publish(workspace, second, make_run(run="r2", started=START + timedelta(hours=1)), tmp_path / "b")
    junk(workspace, demo_runner, "r1", "r0", intent=reports(workspace)["r2"].plan.intent)
    assert "| r2 |" not in section(text_of(workspace), "Abandoned")


@pytest.mark.parametrize("seen_at", [1.5, 3])
def test_a_rejection_by_a_fast_clock_is_not_stepped_over(
    *, workspace: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path, seen_at: float
) -> None:
    """What a runner signed on top shows that the rejection was there, whatever its own time says."""
    publish(workspace, demo_runner, make_run(run="r1"), tmp_path / "a")
    third = PrivateKey.generate()
    trust_key(repository_file(workspace), signer_line("adopter", "demo-third", third.public))
    decide.reject(desk(workspace, demo_adopter, 4), "r1", "noisy, do not use")
    seen = Observation(
        created_at=at(seen_at), parents=book(workspace).heads(), seat="cpu-mini", label="cpu", subjects={}, resolved={}
    )
    ledger.append_observation(workspace, seen, demo_runner)
    with pytest.raises(TrustError) as refused:
        decide.adopt(desk(workspace, third, 2), "r1", "good")
    assert "rejected it (noisy, do not use)" in refused.value.found or seen_at > 2
    assert "noisy, do not use" in section(text_of(workspace), "Rejected")
