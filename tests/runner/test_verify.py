"""``verify`` refuses whatever does not follow, even from the runner's own key."""

from __future__ import annotations

import base64
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.attest import dsse
from runner.attest.keys import PrivateKey
from runner.attest.trust import Trust, load_trust, repository_file, signer_line, trust_key, user_file
from runner.digest import canonical_json, sha256_bytes
from runner.draw import Draw
from runner.errors import InputError, TrustError
from runner.measured import pack, unpack
from runner.model.report import Measured, Packed
from runner.model.verdict import Status
from runner.verify import Verification, verify
from runner.verify_samples import arm_of
from tests.runner.records import Run, digest_of, make_run, make_workspace, publish, trust_of

pytestmark = pytest.mark.usefixtures("rate_gate")


@pytest.fixture
def folder(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> Path:
    """A published report that passes."""
    return publish(workspace, demo_runner, make_run(), tmp_path / "state")


def check(folder: Path, *, deep: bool = False) -> Verification:
    """Verify inside the folder's workspace."""
    workspace = folder.parents[2]
    return verify(folder, trust_of(workspace), workspace, deep=deep)


def test_an_honest_report_is_authentic(folder: Path) -> None:
    found = check(folder)
    assert (found.verdict, found.gates, found.label) == (Status.PASS, {"speed": Status.PASS}, "cpu")
    assert (found.trust, found.signers, found.kept, found.not_kept) == (
        "repository",
        ("runner:demo-runner",),
        24,
        (),
    )


def test_a_report_that_fails_is_authentic_too(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> None:
    folder = publish(workspace, demo_runner, make_run(rates=("10", "9")), tmp_path / "state")
    assert check(folder).verdict is Status.FAIL


def test_deep_reads_every_sample_again(folder: Path) -> None:
    found = check(folder, deep=True)
    assert (len(found.replayed), found.needs_full_evidence) == (24, ())


def test_deep_says_what_needs_the_full_evidence(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> None:
    run = make_run()
    name = "evidence/speed-q0-b0.json"
    noise = base64.b64encode(random.Random(3).randbytes(300_000)).decode()
    value = json.loads(run.files[name])
    value["facts"]["noise"] = noise
    data = canonical_json(value)
    digest = sha256_bytes(data)
    samples = tuple(
        sample.model_copy(update={"evidence": (digest,)}) if sample.window == "speed-q0-b0" else sample
        for sample in run.record.samples
    )
    record = run.record.model_copy(update={"samples": samples, "evidence": {**run.record.evidence, name: digest}})
    folder = publish(workspace, demo_runner, Run(record, {**run.files, name: data}), tmp_path / "state")
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


def test_no_byte_of_the_report_can_change(folder: Path) -> None:
    path, workspace = folder / "report.dsse.json", folder.parents[2]
    data, choose, trust = path.read_bytes(), random.Random(4), trust_of(workspace)
    for _ in range(2000):
        changed = bytearray(data)
        changed[choose.randrange(len(data))] ^= choose.randrange(1, 256)
        path.write_bytes(changed)
        with pytest.raises(TrustError):
            verify(folder, trust, workspace)


def test_no_byte_of_the_archive_can_change(folder: Path) -> None:
    path = folder / "evidence.tar.xz"
    data, choose = path.read_bytes(), random.Random(5)
    for _ in range(40):
        changed = bytearray(data)
        changed[choose.randrange(len(data))] ^= choose.randrange(1, 256)
        path.write_bytes(changed)
        with pytest.raises(TrustError, match="another evidence archive"):
            check(folder)
    path.unlink()
    with pytest.raises(TrustError, match="another evidence archive"):
        check(folder)


Change = Callable[[dict[str, Any], dict[str, Any]], None]
"""Edits the predicate and its unfolded record."""


def forge(folder: Path, key: PrivateKey, change: Change) -> None:
    """Edit a report and sign it again with the runner's own key, every digest in it made to fit."""
    path = folder / "report.dsse.json"
    statement = json.loads(dsse.parse(path.read_bytes()).payload)
    predicate = statement["predicate"]
    measured, _ = unpack(Packed.model_validate(predicate["record"]), "x")
    record = measured.model_dump(mode="json")
    change(predicate, record)
    predicate["record"] = pack(Measured.model_validate_json(canonical_json(record))).model_dump(mode="json")
    path.write_bytes(dsse.sign(canonical_json(statement), key))


def edit_sample(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    for sample in record["samples"]:
        sample["measure"]["decode_rate"] = "9"


def edit_verdict(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["gates"][0]["verdict"] = predicate["verdict"] = "FAIL"


def edit_figure(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["gates"][0]["figures"][0]["value"] = "9.9"


def edit_overall(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["verdict"] = "NOT_RUN"


def hide_as_not_run(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["gates"][0].update(verdict="NOT_RUN", reasons=[], figures=[])
    predicate["verdict"] = "NOT_RUN"


def drop_gate(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["gates"] = []
    predicate["verdict"] = "NOT_RUN"


def move_margin(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    record["plan"]["gates"][0]["parameters"]["margin_percent"] = "1"


def move_margin_and_digest(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    move_margin(predicate, record)
    predicate["plan"]["digest"] = sha256_bytes(canonical_json(record["plan"]))


def edit_seed(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["plan"]["seed"] = "00" * 32


def edit_order(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["order"]["text"] += "margin: 0\n"


def rename_order(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["order"]["name"] = "other"


def rename_run(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["run"] = "r2"


def rename_seat(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["seat"]["name"] = "h200-tp1"


def raise_label(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["seat"]["label"] = "real"


def swap_arms(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    for sample in record["samples"]:
        sample["variant"] = "lna2" if sample["variant"] == "incumbent" else "incumbent"


def other_boot(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    record["boots"][0]["planned"] = "another"


def boot_of_another_day(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    record["boots"][0]["started_at"] = "2026-11-01T00:00:00Z"


def two_boots_of_one_id(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    record["boots"].append(record["boots"][0])


def missing_rank(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    for sample in record["samples"]:
        sample["engagement"].pop()


def boot_without_rank_0(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    record["boots"][0]["ranks"].pop(0)


def unknown_window(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    record["samples"][0]["window"] = "warm-up"


def measured_twice(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    record["samples"].append(record["samples"][0])


def other_instrument(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    record["samples"][0]["instrument"] = "rate@2"


def unplanned_variant(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    sample = next(each for each in record["samples"] if each["variant"] == "lna2")
    sample["variant"] = "lna3"


def unlisted_evidence(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    record["samples"][0]["evidence"] = [digest_of("made up")]


def other_evidence(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["evidence"]["files"]["evidence/speed-q0-b0.json"] = digest_of("made up")
    record["samples"][0]["evidence"] = []


def hidden_evidence(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["evidence"]["not_kept"] = ["evidence/speed-q0-b0.json"]


def invented_evidence(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["evidence"]["not_kept"] = ["evidence/never.json"]


def claim_a_witness(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["assurance"].append("perturbation")


def no_self_test(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["self_test"] = []


def passed_self_test(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["self_test"][0]["status"] = "PASS"


def before_the_intent(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["started_at"] = "2026-11-02T08:00:00Z"


def unknown_gate_version(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    record["plan"]["gates"][0]["version"] = 9


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (edit_sample, "verdict does not follow from the samples"),
        (edit_verdict, "verdict does not follow from the samples"),
        (edit_figure, "verdict does not follow from the samples"),
        (hide_as_not_run, "verdict does not follow from the samples"),
        (edit_overall, "overall verdict does not follow"),
        (drop_gate, "not the plan's gates"),
        (move_margin, "plan was changed after it was sealed"),
        (move_margin_and_digest, "plan was changed after it was sealed"),
        (unknown_gate_version, "plan was changed after it was sealed"),
        (edit_seed, "seed is not the one committed to"),
        (edit_order, "order's text was changed"),
        (rename_order, "order's name differs"),
        (rename_run, "run's name differs"),
        (rename_seat, "seat differs"),
        (raise_label, "label is not that of the boots"),
        (swap_arms, "variant is not that of its arm"),
        (other_boot, "boot that the plan does not name"),
        (boot_of_another_day, "boot of another time"),
        (two_boots_of_one_id, "two boots with one id"),
        (missing_rank, "does not cover the boot's ranks"),
        (boot_without_rank_0, "rank is missing"),
        (unknown_window, "window or boot that is not in the plan"),
        (measured_twice, "measured twice"),
        (other_instrument, "another instrument than planned"),
        (unplanned_variant, "variant is not that of its arm"),
        (unlisted_evidence, "evidence that the report does not list"),
        (other_evidence, "evidence is not what the report says"),
        (hidden_evidence, "does not belong there"),
        (invented_evidence, "never was"),
        (claim_a_witness, "outside witnesses do not follow"),
        (no_self_test, "not shown to fail"),
        (passed_self_test, "not shown to fail"),
        (before_the_intent, "times are not in order"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_edited_report_signed_again_by_the_runner_is_refused(
    folder: Path, demo_runner: PrivateKey, change: Change, reason: str
) -> None:
    forge(folder, demo_runner, change)
    with pytest.raises(TrustError, match=reason):
        check(folder)


def test_forging_without_an_edit_is_accepted(folder: Path, demo_runner: PrivateKey) -> None:
    forge(folder, demo_runner, lambda predicate, record: None)
    assert check(folder).verdict is Status.PASS


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


def test_another_intent_under_the_right_name_is_refused(folder: Path) -> None:
    intent = next((folder.parents[2] / "reports/ledger").iterdir())
    intent.write_bytes(intent.read_bytes() + b" ")
    with pytest.raises(TrustError, match="another than the report names"):
        check(folder)


def test_subjects_must_be_those_that_were_planned(folder: Path, demo_runner: PrivateKey) -> None:
    path = folder / "report.dsse.json"
    statement = json.loads(dsse.parse(path.read_bytes()).payload)
    statement["subject"] = [each for each in statement["subject"] if each["name"] != "pack.payload"]
    path.write_bytes(dsse.sign(canonical_json(statement), demo_runner))
    with pytest.raises(TrustError, match=r"another pack\.payload than was planned"):
        check(folder)


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
