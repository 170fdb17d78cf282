"""Which of several decisions stands, and which statements say nothing: as the canon, the list and the cards read it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from runner import canon, decide, ledger
from runner.attest.keys import PrivateKey
from runner.attest.statement import sign
from runner.attest.trust import repository_file, signer_line, trust_key
from runner.canon_entry import standing_lines
from runner.decisions import current, decisions, standing
from runner.errors import InputError, StateError, TrustError
from runner.ledger import ADOPTIONS, LEDGER, SUFFIX, Ledger
from runner.listing import list_reports
from runner.model.adoption import Adoption, Observation, ReportName, Reproduction, Revocation, Waiver
from runner.model.report import ReportPredicate
from runner.reproduction import shape
from tests.runner.records import START, announce, digest_of, make_run, publish, trust_of
from tests.runner.test_canon import at, desk, section, text_of
from tests.runner.test_counts import adopted_by_hand, name_of

pytestmark = pytest.mark.usefixtures("rate_gate")


@pytest.fixture
def pair(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> Path:
    """A workspace with two passing reports of one order, ``r1`` and ``r2``."""
    for number, run in enumerate(("r1", "r2")):
        publish(workspace, demo_runner, make_run(run=run, started=START + timedelta(minutes=number)), tmp_path / run)
    return workspace


def book(workspace: Path) -> Ledger:
    return ledger.load(workspace, trust_of(workspace))


def runs_standing(workspace: Path) -> list[str]:
    return [each.report.run for each in standing(book(workspace))]


def states(workspace: Path) -> dict[str, str]:
    return {each.run: each.state for each in list_reports(book(workspace))}


def test_a_descriptive_adoption_takes_nothing_from_what_stands(pair: Path, demo_adopter: PrivateKey) -> None:
    decide.adopt(desk(pair, demo_adopter, 1), "r1", "good")
    decide.adopt(desk(pair, demo_adopter, 2), "r2", "good to know", descriptive=True)
    decide.adopt(desk(pair, demo_adopter, 3), "r1", "figures too", descriptive=True)
    assert runs_standing(pair) == ["r1"]
    text = text_of(pair)
    assert "Run [r1]" in section(text, "Standing") and "Run [r2]" not in section(text, "Standing")
    assert "Run [r1]" in section(text, "Descriptive")
    assert "[r2]" in section(text, "Adopted earlier")
    assert states(pair) == {"r1": "adopted", "r2": "adopted"}


def test_what_was_adopted_as_descriptive_can_still_be_adopted_to_stand(pair: Path, demo_adopter: PrivateKey) -> None:
    decide.adopt(desk(pair, demo_adopter, 1), "r1", "good to know", descriptive=True)
    assert runs_standing(pair) == []
    decide.adopt(desk(pair, demo_adopter, 2), "r2", "good")
    decide.adopt(desk(pair, demo_adopter, 3), "r1", "better after all")
    assert runs_standing(pair) == ["r1"], "what was decided last, whatever was decided about it before"
    assert [each.report.run for each in current(decisions(book(pair)), "descriptive")] == ["r1"]
    with pytest.raises(TrustError, match="adopted already"):
        decide.adopt(desk(pair, demo_adopter, 4), "r1", "again")


def test_a_report_that_another_displaced_is_adopted_again(pair: Path, demo_adopter: PrivateKey) -> None:
    decide.adopt(desk(pair, demo_adopter, 1), "r1", "good")
    decide.adopt(desk(pair, demo_adopter, 2), "r2", "better")
    decide.adopt(desk(pair, demo_adopter, 3), "r1", "r2 loses needles")
    assert runs_standing(pair) == ["r1"]


def test_one_adoption_stands_on_a_seat_whatever_its_order(
    pair: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path
) -> None:
    late = START + timedelta(minutes=9)
    publish(pair, demo_runner, make_run(run="r3", order="other", started=late), tmp_path / "o")
    publish(pair, demo_runner, make_run(run="r4", order="far", seat="cpu-far", started=late), tmp_path / "f")
    first = decide.adopt(desk(pair, demo_adopter, 1), "r1", "good").name[:12]
    second = decide.adopt(desk(pair, demo_adopter, 2), "r2", "better").name[:12]
    decide.adopt(desk(pair, demo_adopter, 3), "r4", "another seat")
    text = section(text_of(pair), "Standing")
    assert "Took the place of [r1](../reports/mini-lna2/r1/report.md), order mini-lna2.\n" in text
    third = decide.adopt(desk(pair, demo_adopter, 4), "r3", "another order").name[:12]
    assert runs_standing(pair) == ["r3", "r4"]
    text = text_of(pair)
    assert "/r2/report.md), order mini-lna2.\n" in section(text, "Standing"), "nothing says it was measured on top"
    assert "[r1]" in section(text, "Adopted earlier") and "[r2]" in section(text, "Adopted earlier")
    assert "back to run r2" in decide.way_back(book(pair), third)[1]
    for earlier in (first, second):
        assert "it does not stand (run r3, adopted on" in decide.way_back(book(pair), earlier)[1]
    decide.revoke(desk(pair, demo_adopter, 5), third, "loses needles")
    assert runs_standing(pair) == ["r4", "r2"]


@pytest.mark.parametrize(("payload", "on_top"), [("payload", True), ("another", False)])
def test_an_entry_says_that_it_was_measured_on_what_stood_before_where_the_record_shows_it(
    *, pair: Path, demo_adopter: PrivateKey, payload: str, on_top: bool
) -> None:
    for hours, run in enumerate(("r1", "r2"), 1):
        decide.adopt(desk(pair, demo_adopter, hours), run, "good")
    known = book(pair)
    before, stands = decisions(known)
    made = {"product.header": digest_of("header"), "product.payload": digest_of(payload)}
    before = replace(before, entry=replace(before.entry, subjects=made))
    text = "\n".join(standing_lines(stands, known, before))
    assert ("order mini-lna2; measured on top of the pack that run made." in text) == on_top


def test_when_a_waiver_is_over_what_stood_before_stands_again(
    pair: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path
) -> None:
    slow = make_run(run="r3", rates=("10", "10.2"), started=START + timedelta(minutes=9))
    publish(pair, demo_runner, slow, tmp_path / "w")
    decide.adopt(desk(pair, demo_adopter, 1), "r1", "good")
    decide.waive(desk(pair, demo_adopter, 2), "r3", "speed", "saves memory", at(4))
    adopted = decide.adopt(desk(pair, demo_adopter, 3), "r3", "for a while").name[:12]
    assert runs_standing(pair) == ["r3"] and states(pair)["r3"] == "adopted"
    decide.reject(desk(pair, demo_adopter, 5), "r2", "something later")
    assert runs_standing(pair) == ["r1"]
    (listed,) = (each for each in list_reports(book(pair)) if each.run == "r3")
    assert listed.state == "pending" and "a time that is over" in listed.reason
    assert "it does not stand (run r1, adopted on" in decide.way_back(book(pair), adopted)[1]
    decide.waive(desk(pair, demo_adopter, 6), "r3", "speed", "still saves memory", at(9))
    assert runs_standing(pair) == ["r1"], "an adoption rests on the waivers that it names"
    decide.adopt(desk(pair, demo_adopter, 7), "r3", "for longer")
    assert runs_standing(pair) == ["r3"]


def test_an_adoption_that_does_not_count_erases_none_that_does(pair: Path, demo_adopter: PrivateKey) -> None:
    decide.adopt(desk(pair, demo_adopter, 1), "r1", "good")
    adopted_by_hand(pair, demo_adopter, name_of(pair / "reports/mini-lna2/r1"), waivers=("ab" * 32,))
    adopted_by_hand(pair, demo_adopter, name_of(pair / "reports/mini-lna2/r2"), waivers=("ab" * 32,))
    assert runs_standing(pair) == ["r1"]
    assert states(pair) == {"r1": "adopted", "r2": "pending"}
    text = text_of(pair)
    assert "[r1]" in section(text, "Adoptions that do not count")
    assert "[r2]" in section(text, "Pending") and "[r1]" not in section(text, "Pending")


def test_a_rejection_stays_where_an_adoption_of_another_branch_comes_later(
    pair: Path, demo_adopter: PrivateKey
) -> None:
    name, before = name_of(pair / "reports/mini-lna2/r1"), book(pair).heads()
    decide.reject(desk(pair, demo_adopter, 1), "r1", "too small a gain")
    adopted_by_hand(pair, demo_adopter, name, parents=before)
    assert states(pair)["r1"] == "rejected"
    assert "too small a gain" in section(text_of(pair), "Rejected")
    assert runs_standing(pair) == []


def dated_back(kind: str, workspace: Path, adopter: PrivateKey, hours: float, *, blind: bool) -> None:
    """Sign a decision of some kind by hand; ``blind`` names no parents, only what the decision is about."""
    known = book(workspace)
    parents = () if blind else known.heads()
    name, when = name_of(workspace / "reports/mini-lna2/r1"), at(hours)
    made: Adoption | Waiver | Revocation
    digests = {"report": name.digest}
    if kind == "revocation":
        ((adopted, _),) = known.of(Adoption)
        made = Revocation(created_at=when, parents=parents, revokes=adopted.digest, reason="by hand")
        digests = {"decision": adopted.digest}
    elif kind == "waiver":
        expiry = at(99)
        made = Waiver(created_at=when, parents=parents, report=name, gate="speed", reason="by hand", expires_at=expiry)
    else:
        made = Adoption(
            created_at=when,
            parents=parents,
            result="REJECTED",
            report=name,
            seat="cpu-mini",
            scope="standing",
            waivers=(),
            reason="by hand",
        )
    ledger.append(workspace, ADOPTIONS, sign(made, digests, adopter))


@pytest.mark.parametrize("blind", [False, True], ids=["with parents", "without parents"])
@pytest.mark.parametrize("kind", ["revocation", "rejection"])
def test_what_a_key_dates_back_takes_nothing_back(
    *, pair: Path, demo_adopter: PrivateKey, kind: str, blind: bool
) -> None:
    """A key that has expired at ``at(-1)``, say, speaks again."""
    decide.adopt(desk(pair, demo_adopter, 1), "r1", "good")
    dated_back(kind, pair, demo_adopter, -2, blind=blind)
    assert runs_standing(pair) == ["r1"]
    text = text_of(pair)
    assert "by hand" in section(text, "Statements without effect")
    assert "bears an earlier time than what it saw" in section(text, "Statements without effect")
    assert "by hand" not in section(text, "History")
    dated_back(kind, pair, demo_adopter, 3, blind=blind)
    assert runs_standing(pair) == [], "an honest time, and it counts"


@pytest.mark.parametrize("blind", [False, True], ids=["with parents", "without parents"])
def test_a_waiver_dated_back_lets_nothing_through(
    *, workspace: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path, blind: bool
) -> None:
    publish(workspace, demo_runner, make_run(rates=("10", "10.2")), tmp_path / "s")
    dated_back("waiver", workspace, demo_adopter, -2, blind=blind)
    with pytest.raises(TrustError, match="gate speed is FAIL"):
        decide.adopt(desk(workspace, demo_adopter, 2), "r1", "anyway")
    dated_back("waiver", workspace, demo_adopter, 2, blind=blind)
    decide.adopt(desk(workspace, demo_adopter, 3), "r1", "saves memory")


@pytest.mark.parametrize(("days", "stands"), [(366, True), (367, False)])
def test_a_waiver_for_more_than_a_year_lets_nothing_through(
    *, workspace: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path, days: int, stands: bool
) -> None:
    """Nor one that somebody signs without asking this code."""
    publish(workspace, demo_runner, make_run(rates=("10", "10.2")), tmp_path / "s")
    name = name_of(workspace / "reports/mini-lna2/r1")
    made = Waiver(
        created_at=at(1),
        parents=book(workspace).heads(),
        report=name,
        gate="speed",
        reason="by hand",
        expires_at=at(1 + 24 * days),
    )
    ledger.append(workspace, ADOPTIONS, sign(made, {"report": name.digest}, demo_adopter))
    with nullcontext() if stands else pytest.raises(TrustError, match="more than 366 days"):
        decide.adopt(desk(workspace, demo_adopter, 2), "r1", "saves memory")
    assert runs_standing(workspace) == (["r1"] if stands else [])


def test_a_renewed_waiver_serves(
    workspace: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path
) -> None:
    publish(workspace, demo_runner, make_run(rates=("10", "10.2")), tmp_path / "s")
    first = decide.waive(desk(workspace, demo_adopter, 1), "r1", "speed", "saves memory", at(3))
    decide.adopt(desk(workspace, demo_adopter, 2), "r1", "in time")
    with pytest.raises(TrustError, match="expired"):
        decide.adopt(desk(workspace, demo_adopter, 4), "r1", "late")
    second = decide.waive(desk(workspace, demo_adopter, 4), "r1", "speed", "still saves memory", at(9))
    decide.adopt(desk(workspace, demo_adopter, 5), "r1", "renewed")
    stands = section(text_of(workspace), "Standing")
    assert ": still saves memory" in stands and ": saves memory" not in stands
    both = tuple(path.name.removesuffix(SUFFIX) for path in (first, second))
    name = name_of(workspace / "reports/mini-lna2/r1")
    adopted_by_hand(workspace, demo_adopter, name, waivers=both, created_at=at(6), reason="names both")
    assert "names both" in section(text_of(workspace), "Standing"), "an expired one beside one that runs is no fault"
    with pytest.raises(TrustError, match="expired"):
        decide.adopt(desk(workspace, demo_adopter, 10), "r1", "late again")


def observed(workspace: Path, key: PrivateKey, when: str, payload: str) -> None:
    seen = Observation(
        created_at=when,
        parents=book(workspace).heads(),
        seat="cpu-mini",
        label="cpu",
        subjects={"pack.payload": digest_of(payload)},
        resolved={},
    )
    ledger.append_observation(workspace, seen, key)


def test_a_date_ahead_of_all_clocks_holds_nobody_up(
    pair: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey
) -> None:
    observed(pair, demo_runner, "2099-01-01T00:00:00Z", "new")
    for decision in (decide.adopt, decide.reject):
        with pytest.raises(TrustError, match="earlier time than what it saw") as caught:
            decision(desk(pair, demo_adopter, 2), "r1", "good")
        assert "2099-01-01" in caught.value.found
    assert not (pair / ADOPTIONS).exists(), "nothing was signed that would not count"
    observed(pair, demo_runner, at(3), "payload")
    decide.adopt(desk(pair, demo_adopter, 4), "r1", "good")
    text = text_of(pair)
    assert "Run [r1]" in section(text, "Standing") and "Stale" not in text
    assert f"As of {at(4)}:" in text
    assert f"| cpu-mini | cpu | {at(3)} |" in section(text, "Seats as last observed")


@pytest.mark.parametrize("how", ["a decision in between", "a runner's key that decides too"])
def test_nobody_dates_back_over_what_the_same_key_dated_back(
    *, pair: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, how: str
) -> None:
    late = make_run(run="r3", started=START + timedelta(hours=8))
    announce(pair, late, demo_runner)
    if how == "a decision in between":
        dated_back("rejection", pair, demo_adopter, 2, blind=False)
    else:
        trust_key(repository_file(pair), signer_line("runner", "demo-too", demo_adopter.public))
        observed(pair, demo_adopter, at(2), "payload")
    name = name_of(pair / "reports/mini-lna2/r2")
    adopted_by_hand(pair, demo_adopter, name)
    assert runs_standing(pair) == []
    assert "earlier time than what it saw" in section(text_of(pair), "Adoptions that do not count")


def reproduced(workspace: Path, runner: PrivateKey, names: list[ReportName]) -> None:
    claim = Reproduction(
        created_at=at(3),
        parents=(),
        report=names[0],
        again=names[1],
        plan=shape(make_run().record.plan),
    )
    ledger.append(workspace, LEDGER, sign(claim, {each.run: each.digest for each in names}, runner))


@pytest.mark.parametrize("kind", ["reproduction", "adoption", "waiver", "rejection"])
def test_what_is_said_of_a_report_whose_key_is_not_trusted_here_is_listed(
    *, pair: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path, kind: str
) -> None:
    other = PrivateKey.generate()
    trust_key(repository_file(pair), signer_line("runner", "demo-other", other.public))
    publish(pair, other, make_run(run="r3", started=START + timedelta(hours=1)), tmp_path / "o")
    names = [name_of(pair / "reports/mini-lna2" / run) for run in ("r1", "r3")]
    if kind == "reproduction":
        reproduced(pair, other, names)
    elif kind == "adoption":
        decide.adopt(desk(pair, demo_adopter, 2), "r1", "good")
    else:
        dated_back(kind, pair, demo_adopter, 2, blind=True)
    assert "r1" not in section(text_of(pair), "Statements without effect"), "the honest neighbour: a trusted key"
    lines = repository_file(pair).read_text().splitlines()
    repository_file(pair).write_text("\n".join(each for each in lines if "runner:demo-runner" not in each) + "\n")
    text = text_of(pair)
    because = "the key of reports/mini-lna2/r1/report.dsse.json is not trusted here"
    assert because in section(text, "Statements without effect")
    assert "r1" not in section(text, "History")
    assert "r1" not in states(pair) and runs_standing(pair) == []


def test_a_decision_that_leaves_no_canon_is_not_signed(
    pair: Path, demo_adopter: PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> str:
        raise TrustError("no canon")

    with monkeypatch.context() as patched:
        patched.setattr(canon, "render", fails)
        with pytest.raises(TrustError, match="no canon"):
            decide.adopt(desk(pair, demo_adopter), "r1", "good")
        assert not (pair / ADOPTIONS).exists()
    (pair / canon.CANON).mkdir()
    with pytest.raises(StateError, match="could not be written"):
        decide.adopt(desk(pair, demo_adopter), "r1", "good")
    assert list((pair / ADOPTIONS).iterdir()) == []
    (pair / canon.CANON).rmdir()
    decide.adopt(desk(pair, demo_adopter), "r1", "good")
    assert (pair / canon.CANON).read_text() == text_of(pair)


def test_the_way_back_from_an_older_adoption_leads_nowhere(pair: Path, demo_adopter: PrivateKey) -> None:
    first = decide.adopt(desk(pair, demo_adopter, 1), "r1", "good").name[:12]
    second = decide.adopt(desk(pair, demo_adopter, 2), "r2", "better").name[:12]
    told = decide.way_back(book(pair), first)[1]
    assert "does not stand (run r2, adopted on" in told and "back to run" not in told
    assert "back to run r1" in decide.way_back(book(pair), second)[1]


@pytest.mark.parametrize("letters", [0, 1, 7])
def test_a_decision_is_named_by_enough_of_its_digest(pair: Path, demo_adopter: PrivateKey, letters: int) -> None:
    only = decide.adopt(desk(pair, demo_adopter, 1), "r1", "good").name
    with pytest.raises(InputError, match="no single decision"):
        decide.revoke(desk(pair, demo_adopter, 2), only[:letters], "why")
    decide.revoke(desk(pair, demo_adopter, 2), only[:8], "loses needles")
    assert decisions(book(pair)) == []


def test_reports_are_read_once_for_each_ledger(pair: Path, demo_adopter: PrivateKey) -> None:
    """The canon verifies what was adopted, and nothing else."""
    decide.adopt(desk(pair, demo_adopter, 1), "r1", "good")
    known = book(pair)
    canon.render(known)
    assert [known.entries[digest].of(ReportPredicate).run for digest in known.refused] == ["r1"]
