"""Attempts to bring into the canon what nobody may adopt, and to write into it what nobody signed as such."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from runner import canon, decide, ledger
from runner.attest.keys import PrivateKey
from runner.attest.statement import sign
from runner.attest.trust import repository_file, signer_line, trust_key
from runner.canon_entry import launch_command
from runner.decide import Desk
from runner.errors import InputError, TrustError
from runner.judge import judge
from runner.model.adoption import Adoption, Observation, Revocation
from runner.model.report import ReportPredicate
from tests.runner.records import START, Run, check, instant, make_run, publish, trust_of
from tests.runner.test_counts import adopted_by_hand, name_of

pytestmark = pytest.mark.usefixtures("rate_gate")


def at(hours: float) -> str:
    """Some hours after the first run began."""
    return instant(START + timedelta(hours=hours))


def text_of(workspace: Path) -> str:
    return canon.render(ledger.load(workspace, trust_of(workspace)))


def desk(workspace: Path, key: PrivateKey, hours: float = 1) -> Desk:
    return Desk.open(workspace, key, at(hours))


def section(text: str, title: str) -> str:
    return text.split(f"## {title}")[1].split("\n## ", maxsplit=1)[0]


@pytest.fixture
def published(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> Path:
    """A workspace with one passing report, ``r1``."""
    publish(workspace, demo_runner, make_run(run="r1"), tmp_path / "state")
    return workspace


def test_nobody_waives_a_gate_of_an_own_report(
    workspace: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path
) -> None:
    publish(workspace, demo_runner, make_run(rates=("10", "9")), tmp_path / "s")
    trust_key(repository_file(workspace), signer_line("adopter", "demo-both", demo_runner.public))
    decide.waive(desk(workspace, demo_runner, 1), "r1", "speed", "mine", at(9))
    with pytest.raises(TrustError, match="waiver of speed is by the key that signed the report"):
        decide.adopt(desk(workspace, demo_adopter, 2), "r1", "good")


def test_nobody_clears_an_own_report_of_a_rejection(
    published: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey
) -> None:
    """Also not by hand; who rejected it can, and so can any third person."""
    trust_key(repository_file(published), signer_line("adopter", "demo-both", demo_runner.public))
    third = PrivateKey.generate()
    trust_key(repository_file(published), signer_line("adopter", "demo-third", third.public))
    rejection = decide.reject(desk(published, demo_adopter, 1), "r1", "noisy").name.removesuffix(ledger.SUFFIX)
    with pytest.raises(TrustError, match="nobody clears an own report"):
        decide.revoke(desk(published, demo_runner, 2), rejection, "it is fine")
    heads = ledger.load(published, trust_of(published)).heads()
    mine = Revocation(created_at=at(2), parents=heads, revokes=rejection, reason="it is fine")
    ledger.append(published, ledger.ADOPTIONS, sign(mine, {"decision": rejection}, demo_runner))
    text = text_of(published)
    assert "noisy" in section(text, "Rejected")
    assert "takes somebody's rejection of an own report back" in section(text, "Statements without effect")
    with pytest.raises(TrustError, match="adopter:demo-adopter rejected it"):
        decide.adopt(desk(published, third, 3), "r1", "good")
    decide.revoke(desk(published, third, 4), rejection, "it was the machine")
    decide.adopt(desk(published, third, 5), "r1", "good")
    assert "Run [r1]" in section(text_of(published), "Standing")


def test_who_rejected_an_own_report_may_take_that_back(published: Path, demo_runner: PrivateKey) -> None:
    trust_key(repository_file(published), signer_line("adopter", "demo-both", demo_runner.public))
    rejection = decide.reject(desk(published, demo_runner, 1), "r1", "a slip").name.removesuffix(ledger.SUFFIX)
    decide.revoke(desk(published, demo_runner, 2), rejection, "no slip")
    assert "a slip" not in section(text_of(published), "Rejected")


@pytest.mark.parametrize("reason", ["good", "good, and said again"])
def test_a_decision_taken_back_leaves_no_twin(published: Path, demo_adopter: PrivateKey, reason: str) -> None:
    """Two people sign one adoption; the file with only one of the signatures is the same decision, another is not."""
    third = PrivateKey.generate()
    trust_key(repository_file(published), signer_line("adopter", "demo-third", third.public))
    name = name_of(published / "reports/mini-lna2/r1")
    heads = ledger.load(published, trust_of(published)).heads()
    adoption = Adoption(
        created_at=at(1),
        parents=heads,
        result="ADOPTED",
        report=name,
        seat="cpu-mini",
        scope="standing",
        waivers=(),
        reason="good",
    )
    both = sign(adoption, {"report": name.digest}, demo_adopter, third)
    signed = ledger.append(published, ledger.ADOPTIONS, both).name.removesuffix(ledger.SUFFIX)
    other = adoption.model_copy(update={"reason": reason})
    ledger.append(published, ledger.ADOPTIONS, sign(other, {"report": name.digest}, third))
    decide.revoke(desk(published, demo_adopter, 2), signed, "after all not")
    assert ("Run [r1]" in section(text_of(published), "Standing")) is (reason != "good")


def test_an_observation_that_says_nothing_makes_nothing_fresh(
    published: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey
) -> None:
    """The newest observation that names a subject counts; one that says it is as it was takes it back."""
    decide.adopt(desk(published, demo_adopter, 1), "r1", "good")
    entry, _ = desk(published, demo_adopter, 1.5).report("r1")
    for hours, subjects, fresh in (
        (2, {"pack.payload": "0" * 64}, False),
        (3, {}, False),
        (4, {"pack.payload": entry.subjects["pack.payload"]}, True),
    ):
        seen = Observation(
            created_at=at(hours), parents=(), seat="cpu-mini", label="cpu", subjects=subjects, resolved={}
        )
        ledger.append_observation(published, seen, demo_runner)
        assert ("Stale since" not in section(text_of(published), "Standing")) is fresh


def test_an_adoption_cannot_be_dated_back(
    published: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path
) -> None:
    publish(published, demo_runner, make_run(run="r2", started=START + timedelta(hours=5)), tmp_path / "s")
    with pytest.raises(TrustError, match="earlier time than what it saw") as caught:
        decide.adopt(desk(published, demo_adopter, 2), "r1", "good")
    assert "reports/mini-lna2/r2/report.dsse.json of 2026-" in caught.value.found
    decide.adopt(desk(published, demo_adopter, 9), "r1", "good")


@pytest.mark.parametrize(
    "text",
    ["a\n```\n### forged", "a\u2028## Standing", "\u202egnol", "\x1b[2J", "a\u200bb", "[more](http://example.org)"],
)
def test_no_text_of_a_statement_leaves_its_line(published: Path, demo_adopter: PrivateKey, text: str) -> None:
    adopted_by_hand(published, demo_adopter, name_of(published / "reports/mini-lna2/r1"), reason=text)
    written = text_of(published)
    assert "Run [r1](../reports/mini-lna2/r1/report.md)" in written
    assert not set("\u2028\u202e\x1b\u200b") & set(written)
    assert "](http" not in written
    assert "### forged" not in written.splitlines()
    _, report = ledger.load(published, trust_of(published)).of(ReportPredicate)[0]
    boot = make_run().record.boots[0]
    spoilt = boot.model_copy(
        update={"requested": {"dtype": 1, f"x{text}": 2}, "resolved": {"dtype": text, f"x{text}": text}}
    )
    assert all(line.startswith(("vllm serve", "  ")) for line in launch_command(report, spoilt).splitlines())


@pytest.mark.parametrize("text", ["good\u200b", "\u3164", "\u202egnol", "\x1b[2J", "half \ud800"])
def test_a_reason_reads_as_it_looks(published: Path, demo_adopter: PrivateKey, text: str) -> None:
    with pytest.raises(InputError, match="does not read as it looks"):
        decide.adopt(desk(published, demo_adopter), "r1", text)
    decide.adopt(desk(published, demo_adopter), "r1", "schön schnell, größer\nund 速い")


def test_adopting_reads_the_raw_evidence_again(
    workspace: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path
) -> None:
    run = make_run(run="r1")
    faster = tuple(
        sample.model_copy(update={"measure": sample.measure.model_copy(update={"decode_rate": "99"})})
        if sample.variant != "incumbent"
        else sample
        for sample in run.record.samples
    )
    verdict = judge(run.record.plan, run.record.plan.gates[0], faster, run.record.boots)
    record = run.record.model_copy(update={"samples": faster, "verdicts": (verdict,)})
    folder = publish(workspace, demo_runner, Run(record, run.files), tmp_path / "s")
    assert check(folder).verdict == "PASS", "every digest and verdict fits: only the evidence tells"
    with pytest.raises(TrustError, match="not what its instrument reads"):
        decide.adopt(desk(workspace, demo_adopter), "r1", "fast")


def test_what_nobody_can_read_again_is_not_adopted(
    workspace: Path,
    demo_runner: PrivateKey,
    demo_adopter: PrivateKey,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sample that was edited passes where its evidence is left out; with the run's own folder it is looked at."""
    monkeypatch.setenv("CARVE_STATE", str(tmp_path / "home"))
    whole = publish(workspace, demo_runner, make_run(run="r0"), tmp_path / "s")
    size = sum(path.stat().st_size for path in whole.iterdir())
    monkeypatch.setattr("runner.report.FOLDER_LIMIT", size - 500)
    run = make_run(run="r1")
    folder = publish(workspace, demo_runner, run, tmp_path / "s")
    missing = check(folder, deep=True).needs_full_evidence
    assert missing
    with pytest.raises(TrustError, match="evidence is not here") as caught:
        decide.adopt(desk(workspace, demo_adopter), "r1", "fast")
    assert missing[0] in caught.value.found
    for name, data in run.files.items():
        path = tmp_path / "home" / "runs" / "r1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if name.endswith("b0.json") else b"something else")
    with pytest.raises(TrustError, match="own evidence is not what the report is made from"):
        decide.adopt(desk(workspace, demo_adopter), "r1", "fast")
    for name, data in run.files.items():
        (tmp_path / "home" / "runs" / "r1" / name).write_bytes(data)
    decide.adopt(desk(workspace, demo_adopter), "r1", "fast")
