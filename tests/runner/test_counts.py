"""Every reader of a workspace agrees about which reports count: `verify` says so where they lie."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from runner import canon, decide, ledger
from runner.adoption import objections
from runner.attest.keys import PrivateKey
from runner.attest.statement import Signed, sign
from runner.attest.trust import load_trust, repository_file, signer_line, trust_key, user_file
from runner.counts import counting, refusal
from runner.errors import InputError, StateError, TrustError
from runner.ledger import ADOPTIONS, LEDGER, Ledger
from runner.listing import expand, list_reports
from runner.model.adoption import Adoption, ReportName, Reproduction
from runner.model.report import ReportPredicate
from runner.reproduction import reproductions, shape
from runner.verify import verify
from tests.runner.records import START, Run, make_run, publish, trust_of
from tests.runner.test_canon import at, desk, section, text_of
from tests.runner.test_verify_forged import edit_sample, forge

pytestmark = pytest.mark.usefixtures("rate_gate")


def book(workspace: Path) -> Ledger:
    return ledger.load(workspace, trust_of(workspace))


def adopted_by_hand(workspace: Path, key: PrivateKey, name: ReportName, **changes: object) -> Signed:
    """An adoption that a person signs with another tool, whatever speaks against it."""
    known = book(workspace)
    statement = Adoption(
        created_at=at(2),
        parents=known.heads(),
        result="ADOPTED",
        report=name,
        seat="cpu-mini",
        scope="standing",
        waivers=(),
        reason="by hand",
    ).model_copy(update=changes)
    path = ledger.append(workspace, ADOPTIONS, sign(statement, {"report": name.digest}, key))
    return book(workspace).entries[path.name.removesuffix(ledger.SUFFIX)]


def name_of(folder: Path) -> ReportName:
    checked = verify(folder, trust_of(folder.parents[2]), folder.parents[2])
    return ReportName(run=checked.run, order=checked.order, digest=checked.digest)


def test_a_report_that_verify_refuses_counts_for_nobody(
    folder: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey
) -> None:
    workspace = folder.parents[2]
    (honest,) = list_reports(book(workspace))
    assert (honest.state, [report.run for _, report in counting(book(workspace))]) == ("pending", ["r1"])
    forge(folder, demo_runner, edit_sample)
    known = book(workspace)
    (entry, _), *_ = known.of(ReportPredicate)
    assert "does not follow" in refusal(entry, known)
    assert counting(known) == []
    (listed,) = list_reports(known)
    assert listed.state == "refused" and "does not follow" in listed.reason
    name = ReportName(run="r1", order="mini-lna2", digest=entry.digest)
    adopted_by_hand(workspace, demo_adopter, name)
    text = text_of(workspace)
    assert "it does not verify: the verdict does not follow" in section(text, "Adoptions that do not count")
    assert "Run [r1]" not in section(text, "Standing")


@pytest.mark.parametrize(("field", "value"), [("order", "mini-half-k"), ("run", "r9")])
def test_an_adoption_that_calls_its_report_something_else_does_not_count(
    folder: Path, demo_adopter: PrivateKey, field: str, value: str
) -> None:
    workspace, name = folder.parents[2], name_of(folder)
    adopted_by_hand(workspace, demo_adopter, name.model_copy(update={field: value}))
    assert f"{field} {value}" in section(text_of(workspace), "Adoptions that do not count")


def test_an_adoption_rests_on_no_waiver_that_does_not_stand(folder: Path, demo_adopter: PrivateKey) -> None:
    workspace, name = folder.parents[2], name_of(folder)
    adopted_by_hand(workspace, demo_adopter, name, waivers=("ab" * 32,))
    text = section(text_of(workspace), "Adoptions that do not count")
    assert "it rests on waiver abababababababab, which does not stand" in text


def test_a_reproduction_by_a_report_that_is_refused_proves_nothing(
    folder: Path, demo_runner: PrivateKey, tmp_path: Path
) -> None:
    workspace, other = folder.parents[2], PrivateKey.generate()
    trust_key(repository_file(workspace), signer_line("runner", "demo-other", other.public))
    made = make_run(run="r2", seed=bytes(32), started=START + timedelta(hours=1))
    second = publish(workspace, other, made, tmp_path / "again")

    def claimed() -> list[str]:
        known = book(workspace)
        reports = {report.run: entry for entry, report in known.of(ReportPredicate)}
        names = [ReportName(run=run, order="mini-lna2", digest=entry.digest) for run, entry in sorted(reports.items())]
        claim = Reproduction(
            created_at=at(3),
            parents=(),
            report=names[0],
            again=names[1],
            plan=shape(known.measured(reports["r1"]).plan),
        )
        digests = {"report": names[0].digest, "again": names[1].digest}
        ledger.append(workspace, LEDGER, sign(claim, digests, other))
        known = book(workspace)
        return [each.run for each in reproductions(known.entries[names[0].digest], known)]

    assert claimed() == ["r2"]
    forge(second, other, edit_sample)
    assert claimed() == []


def test_a_linked_report_is_refused_by_every_reader(folder: Path) -> None:
    workspace = folder.parents[2]
    link = folder.with_name("r2")
    link.symlink_to(folder, target_is_directory=True)
    assert link in list(expand([workspace / "reports"]))
    with pytest.raises(TrustError, match="another place than its own"):
        verify(link, trust_of(workspace), workspace)
    with pytest.raises(TrustError, match="symbolic link"):
        book(workspace)
    link.unlink()
    moved = folder.rename(folder.parents[2] / "elsewhere")
    folder.symlink_to(moved, target_is_directory=True)
    with pytest.raises(TrustError, match="symbolic link"):
        verify(folder, trust_of(workspace), workspace)
    with pytest.raises(TrustError, match="symbolic link"):
        book(workspace)


def test_drafts_in_hidden_folders_are_no_reports(folder: Path) -> None:
    shutil.copytree(folder, folder.with_name(".r1.4711"))
    assert list(expand([folder.parents[2] / "reports"])) == [folder / "report.dsse.json"]
    with pytest.raises(InputError, match="no report here"):
        list(expand([folder.parents[2] / "orders"]))


def test_two_people_who_decide_at_once_do_not_overlook_each_other(folder: Path, demo_adopter: PrivateKey) -> None:
    workspace = folder.parents[2]
    first, second = desk(workspace, demo_adopter, 1), desk(workspace, demo_adopter, 2)
    decide.adopt(first, "r1", "good")
    with pytest.raises(StateError, match="since this decision was begun"):
        decide.reject(second, "r1", "not so good")
    assert len(list((workspace / ADOPTIONS).iterdir())) == 1
    assert canon.differs(workspace, text_of(workspace)) == ""
    decide.reject(desk(workspace, demo_adopter, 3), "r1", "not so good after all")


def test_adopt_reads_the_full_evidence_where_it_is(
    workspace: Path,
    demo_runner: PrivateKey,
    demo_adopter: PrivateKey,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CARVE_STATE", str(tmp_path / "home"))
    run = make_run()
    publish(workspace, demo_runner, run, tmp_path / "home" / "runs")
    notes: list[str] = []
    person = decide.Desk.open(workspace, demo_adopter, at(1), notes.append)
    decide.adopt(person, "r1", "good")
    assert notes == [f"read again from the full evidence in {tmp_path / 'home/runs/r1'}: 24 samples"]
    extra = tmp_path / "home" / "runs" / "r1" / "evidence" / "disturbed" / "speed-q0-b0.1.json"
    extra.parent.mkdir()
    extra.write_text("{}")
    checked = workspace / "reports/mini-lna2/r1"
    with pytest.raises(TrustError, match="evidence that the report leaves out"):
        verify(checked, trust_of(workspace), workspace, deep=True, runs=tmp_path / "home" / "runs")
    extra.unlink()
    name = next(iter(run.files))
    path = tmp_path / "home" / "runs" / "r1" / name
    value = json.loads(path.read_bytes()) | {"facts": {"rate": "9.0"}}
    path.write_text(json.dumps(value))
    assert verify(checked, trust_of(workspace), workspace, deep=True).full_evidence == ""
    with pytest.raises(TrustError, match="own evidence is not what the report is made from"):
        verify(checked, trust_of(workspace), workspace, deep=True, runs=tmp_path / "home" / "runs")


@pytest.mark.parametrize("tool", ["none", "bubblewrap"])
def test_what_ran_without_a_sandbox_stands_nowhere(
    *, workspace: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path, tool: str
) -> None:
    made = make_run()
    sandbox = made.record.boots[0].sandbox.model_copy(update={"tool": tool})
    boots = (made.record.boots[0].model_copy(update={"sandbox": sandbox}),)
    publish(workspace, demo_runner, Run(made.record.model_copy(update={"boots": boots}), made.files), tmp_path / "s")
    if tool == "none":
        with pytest.raises(TrustError, match="without a sandbox, so it can only be adopted as descriptive"):
            decide.adopt(desk(workspace, demo_adopter, 1), "r1", "good")
        decide.adopt(desk(workspace, demo_adopter, 1), "r1", "good to know", descriptive=True)
        assert "Run [r1]" in section(text_of(workspace), "Descriptive")
    else:
        decide.adopt(desk(workspace, demo_adopter, 1), "r1", "good")
        assert "Run [r1]" in section(text_of(workspace), "Standing")


def test_what_only_this_user_trusts_is_not_adopted(
    workspace: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARVE_CONFIG", str(tmp_path / "config"))
    own = PrivateKey.generate()
    trust_key(user_file(), signer_line("runner", "mine", own.public))
    publish(workspace, own, make_run(), tmp_path / "s")
    known = ledger.load(workspace, load_trust(workspace))
    (entry, report) = known.of(ReportPredicate)[0]
    adoption = Adoption(
        created_at=at(2),
        parents=known.heads(),
        result="ADOPTED",
        report=ReportName(run=report.run, order=report.order.name, digest=entry.digest),
        seat="cpu-mini",
        scope="standing",
        waivers=(),
        reason="mine",
    )
    said = objections(entry, adoption, {demo_adopter.public.id}, known)
    assert any("only this user trusts the report's key" in words for words in said)
