"""``verify`` refuses whatever does not follow, even from the runner's own key."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from runner.attest import dsse
from runner.attest.keys import PrivateKey
from runner.attest.trust import Trust, load_trust, repository_file, signer_line, trust_key, user_file
from runner.digest import canonical_json, sha256_bytes
from runner.draw import Draw
from runner.errors import CarveError, EvidenceError, InputError, TrustError
from runner.judge import judge
from runner.measured import pack, unpack
from runner.model.report import Measured
from runner.model.run import RunRecord
from runner.model.sample import Sample
from runner.model.verdict import Status
from runner.verify import verify
from runner.verify_samples import arm_of
from tests.runner.records import (
    RateInstrument,
    Run,
    check,
    digest_of,
    make_run,
    make_workspace,
    publish,
    trust_of,
    with_too_much_evidence,
)

pytestmark = pytest.mark.usefixtures("rate_gate")


def test_an_honest_report_is_authentic(folder: Path) -> None:
    found = check(folder)
    assert (found.verdict, found.gates, found.label) == (Status.PASS, {"speed": Status.PASS}, "cpu")
    assert (found.trust, found.signers, found.kept, found.not_kept) == (
        "repository",
        ("runner:demo-runner",),
        24,
        (),
    )


def test_an_edited_or_missing_text_is_named(folder: Path) -> None:
    assert check(folder).text == "same"
    (folder / "report.md").write_text("# PASS")
    assert check(folder).text == "different"
    (folder / "report.md").unlink()
    assert check(folder).text == "missing"


def test_a_report_that_fails_is_authentic_too(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> None:
    folder = publish(workspace, demo_runner, make_run(rates=("10", "9")), tmp_path / "state")
    assert check(folder).verdict is Status.FAIL


def test_deep_reads_every_sample_again(folder: Path) -> None:
    found = check(folder, deep=True)
    assert (len(found.replayed), found.needs_full_evidence) == (24, ())


def test_deep_says_what_needs_the_full_evidence(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> None:
    run, name = with_too_much_evidence(make_run())
    folder = publish(workspace, demo_runner, run, tmp_path / "state")
    found = check(folder, deep=True)
    assert (found.not_kept, found.needs_full_evidence, len(found.replayed)) == ((name,), ("speed-q0-b0",), 23)


def test_trust_of_this_user_alone_is_named(
    workspace: Path, tmp_path: Path, demo_runner: PrivateKey, private_home: Path
) -> None:
    folder = publish(workspace, demo_runner, make_run(), tmp_path / "state")
    repository_file(workspace).write_text("")
    with pytest.raises(TrustError, match="nobody here trusts"):
        verify(folder, load_trust(workspace), workspace)
    trust_key(user_file(), signer_line("runner", "demo-own", demo_runner.public))
    assert verify(folder, load_trust(workspace), workspace).trust == "user"
    assert private_home.exists()


def test_a_report_is_verified_beside_its_intent_without_a_workspace(folder: Path, tmp_path: Path) -> None:
    workspace = folder.parents[2]
    trust = trust_of(workspace)
    alone = tmp_path / "alone"
    shutil.copytree(folder, alone)
    with pytest.raises(TrustError, match="intent is missing"):
        verify(alone, trust)
    intent = next((workspace / "reports/ledger").iterdir())
    shutil.copy(intent, alone / "intent.dsse.json")
    assert verify(alone / "report.dsse.json", trust).verdict is Status.PASS


def test_a_report_without_its_archive_is_refused(folder: Path) -> None:
    (folder / "evidence.tar.xz").unlink()
    with pytest.raises(TrustError, match="another evidence archive"):
        check(folder)


def test_deep_refuses_a_sample_that_its_evidence_does_not_give(
    workspace: Path, demo_runner: PrivateKey, tmp_path: Path
) -> None:
    run = make_run()
    last = run.record.samples[-1]
    measure = last.measure.model_copy(update={"server_tokens": 97})
    samples = (*run.record.samples[:-1], last.model_copy(update={"measure": measure}))
    record = run.record.model_copy(update={"samples": samples})
    folder = publish(workspace, demo_runner, Run(record, run.files), tmp_path / "state")
    assert check(folder).verdict is Status.PASS
    with pytest.raises(TrustError, match="not what its instrument reads") as caught:
        check(folder, deep=True)
    assert "another measure" in caught.value.found


def _with_samples(record: RunRecord, samples: tuple[Sample, ...]) -> RunRecord:
    """The record with other samples, and what its gate says of these."""
    verdict = judge(record.plan, record.plan.gates[0], samples, record.boots)
    return record.model_copy(update={"samples": samples, "verdicts": (verdict,)})


def test_deep_refuses_a_report_that_leaves_a_sample_out(
    workspace: Path, demo_runner: PrivateKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not measured is judged by what was; evidence that can be read says that there was more."""
    run = make_run()
    record = _with_samples(run.record, run.record.samples[:-1])
    folder = publish(workspace, demo_runner, Run(record, run.files), tmp_path / "state")
    assert check(folder).verdict is Status.PASS
    with pytest.raises(TrustError, match="a sample was left out") as caught:
        check(folder, deep=True)
    assert run.record.samples[-1].window in caught.value.where
    unreadable = EvidenceError("nothing to read")
    monkeypatch.setattr(RateInstrument, "reduce", lambda *given: (_ for _ in ()).throw(unreadable))
    monkeypatch.setattr("runner.replay._compare", lambda *given: None)
    assert check(folder, deep=True).verdict is Status.PASS


def test_what_no_gate_or_instrument_can_read_is_refused_and_stops_nothing_else(
    workspace: Path, demo_runner: PrivateKey, tmp_path: Path
) -> None:
    run = make_run()
    still = tuple(
        sample.model_copy(update={"measure": sample.measure.model_copy(update={"decode_rate": "0"})})
        for sample in run.record.samples
    )
    record = run.record.model_copy(update={"samples": still})
    first = publish(workspace, demo_runner, Run(record, run.files), tmp_path / "state")
    with pytest.raises(TrustError, match="samples that their gate cannot judge"):
        check(first)
    later = make_run(run="r2")
    name = "evidence/speed-q0-b0.json"
    value = json.loads(later.files[name])
    del value["facts"]["rate"]
    data = canonical_json(value)
    samples = tuple(
        sample.model_copy(update={"evidence": (sha256_bytes(data),)}) if sample.window == "speed-q0-b0" else sample
        for sample in later.record.samples
    )
    evidence = {**later.record.evidence, name: sha256_bytes(data)}
    record = later.record.model_copy(update={"samples": samples, "evidence": evidence})
    second = publish(workspace, demo_runner, Run(record, {**later.files, name: data}), tmp_path / "state")
    assert check(second).verdict is Status.PASS
    with pytest.raises(TrustError, match="evidence that its instrument cannot read"):
        check(second, deep=True)


@pytest.mark.parametrize("name", ["report.dsse.json", "evidence.tar.xz"])
def test_a_report_is_of_plain_files(folder: Path, name: str) -> None:
    """A pipe would keep its reader for ever, and a file without end fill its memory."""
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(CarveError, match=r"no report to read|archive cannot be read"):
        check(folder)
    (folder / name).unlink()
    with (folder / name).open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(CarveError, match=r"no report to read|archive cannot be read"):
        check(folder)


def test_another_intent_under_the_right_name_is_refused(folder: Path) -> None:
    intent = next((folder.parents[2] / "reports/ledger").iterdir())
    intent.write_bytes(intent.read_bytes() + b" ")
    with pytest.raises(TrustError, match="another than the report names"):
        check(folder)


@pytest.mark.parametrize(
    ("gates", "words"),
    [
        ("  - {name: speed, parameters: {margin_percent: 8}}\n", "something else than the order says"),
        ("  - {name: speed, parameters: {margin_percent: 5, metric: other}}\n", "something else than the order says"),
        (
            "  - {name: speed, parameters: {margin_percent: 5}, windows: {block: 9, other: 1}}\n",
            "less or other is measured than the order says",
        ),
        ("  - {name: speed, version: 2}\n", "does not have the order's gates"),
        ("  - name: speed\n  - name: kld\n", "does not have the order's gates"),
        ("  - name: speed\nprimary: {margin: 0.05, pairs: 6}\n", "something else than the order says"),
        ("  - name: speed\nprimary: {pairs: 7}\n", "other pairs than the order"),
        ("  - name: speed\nprimary: {pairs: many}\n", "gates cannot be read"),
        ("  - {version: 1}\n", "gates cannot be read"),
        ("  - speed\n", "gates cannot be read"),
    ],
)
def test_a_plan_that_is_softer_than_its_order_is_refused(
    *, workspace: Path, demo_runner: PrivateKey, tmp_path: Path, gates: str, words: str
) -> None:
    folder = publish(workspace, demo_runner, make_run(gates=gates), tmp_path / "s")
    with pytest.raises(TrustError, match=words):
        check(folder)


def test_how_the_order_writes_a_number_does_not_matter(
    workspace: Path, demo_runner: PrivateKey, tmp_path: Path
) -> None:
    gates = "  - {name: speed, parameters: {margin_percent: 5.0}}\n  - {name: score, planned: {owner: maintainers}}\n"
    folder = publish(workspace, demo_runner, make_run(gates=gates), tmp_path / "s")
    assert check(folder).verdict is Status.PASS


def test_subjects_must_be_those_that_were_planned(folder: Path, demo_runner: PrivateKey) -> None:
    path = folder / "report.dsse.json"
    statement = json.loads(dsse.parse(path.read_bytes()).payload)
    statement["subject"] = [each for each in statement["subject"] if each["name"] != "pack.payload"]
    path.write_bytes(dsse.sign(canonical_json(statement), demo_runner))
    with pytest.raises(TrustError, match=r"another pack\.payload than was planned"):
        check(folder)


def test_a_subject_that_nobody_planned_is_refused(folder: Path, demo_runner: PrivateKey) -> None:
    """A pack that was never served would stand among the subjects, and the card of that pack cite the report."""
    path = folder / "report.dsse.json"
    statement = json.loads(dsse.parse(path.read_bytes()).payload)
    statement["subject"].append({"name": "zz.other", "digest": {"sha256": digest_of("other pack")}})
    path.write_bytes(dsse.sign(canonical_json(statement), demo_runner))
    with pytest.raises(TrustError, match="a subject that nobody planned"):
        check(folder)


def test_files_without_end_beside_a_report_fill_no_memory(folder: Path) -> None:
    text = folder / "report.md"
    with text.open("wb") as stream:
        stream.truncate(1 << 40)
    assert check(folder).text == "different"
    intent = next((folder.parents[2] / "reports/ledger").iterdir())
    with intent.open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(TrustError, match="a signed file cannot be read"):
        check(folder)


def test_deep_says_what_is_listed_and_nowhere(folder: Path, demo_runner: PrivateKey) -> None:
    """A block that is said to have been set aside, and that nobody can look at."""
    path = folder / "report.dsse.json"
    statement = json.loads(dsse.parse(path.read_bytes()).payload)
    name = "evidence/disturbed/speed-q0-b0.1.json"
    statement["predicate"]["evidence"]["files"][name] = digest_of("never")
    statement["predicate"]["repeats"] = 1
    path.write_bytes(dsse.sign(canonical_json(statement), demo_runner))
    assert check(folder, deep=True).needs_full_evidence == (name,)


def test_a_statement_of_another_kind_is_no_report(folder: Path) -> None:
    intent = next((folder.parents[2] / "reports/ledger").iterdir())
    with pytest.raises(TrustError, match="another kind"):
        verify(intent, trust_of(folder.parents[2]), folder.parents[2])


def test_nothing_there_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no report to read"):
        verify(tmp_path, Trust(()))


@pytest.mark.parametrize(
    "change",
    [{"size": 10}, {"size": 0}, {"size": 1 << 40}, {"data": "AAAA"}, {"data": "!"}, {"digest": digest_of("x")}],
)
def test_a_packed_record_unfolds_to_exactly_what_it_says(change: dict[str, object]) -> None:
    record = make_run().record
    packed = pack(Measured(plan=record.plan, boots=record.boots, samples=record.samples))
    assert unpack(packed, "x")[0].samples == record.samples
    with pytest.raises(TrustError, match="packed record"):
        unpack(packed.model_copy(update=change), "x")


def test_a_drawn_window_without_its_block_is_refused(tmp_path: Path) -> None:
    run = make_run()
    window = run.record.plan.windows[0].model_copy(update={"arguments": {"quad": "q0", "block": 4}})
    draw = Draw(bytes(32), run.record.plan_digest)
    with pytest.raises(TrustError, match="names no block of a quad"):
        arm_of(window, draw)


def test_every_workspace_verifies_with_its_own_trust_only(folder: Path, tmp_path: Path) -> None:
    stranger = make_workspace(tmp_path / "stranger", runner_other=PrivateKey.generate())
    with pytest.raises(TrustError, match="nobody here trusts"):
        verify(folder, trust_of(stranger), folder.parents[2])
