"""A report edited and signed again with the runner's own key: each edit is refused for its own reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner import verify_statement
from runner.attest import dsse
from runner.attest.keys import PrivateKey
from runner.attest.trust import repository_file, signer_line, trust_key
from runner.digest import canonical_json, sha256_bytes
from runner.errors import TrustError
from runner.measured import pack, unpack
from runner.model.report import Measured, Packed
from runner.model.verdict import Status
from tests.runner.records import check, digest_of

pytestmark = pytest.mark.usefixtures("rate_gate")

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


def claim_a_sandbox(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    record["boots"][0]["sandbox"].update(tool="none", network="host")


def stale_library(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    record["boots"][0]["ranks"][1]["libraries"]["lna2"] = digest_of("last week's build")


def stale_plugin(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    record["boots"][0]["ranks"][0]["trees"]["plugin"] = digest_of("edited on the seat")


def library_not_loaded(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    record["boots"][0]["ranks"][1]["libraries"].pop("lna2")


def other_engine(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    record["boots"][0]["engine"]["record"] = digest_of("patched engine")


def other_grader(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["graders"]["gate/speed@1"] = digest_of("a kinder gate")


def hide_seat_time(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["costs"][0]["seconds"] -= 1


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
    predicate["evidence"]["kept"]["evidence/speed-q0-b0.json"] = digest_of("made up")


def hidden_evidence(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    del predicate["evidence"]["kept"]["evidence/speed-q0-b0.json"]


def invented_evidence(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["evidence"]["kept"]["evidence/never.json"] = digest_of("made up")


def claim_a_witness(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["assurance"].append("perturbation")


def no_self_test(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["self_test"] = []


def passed_self_test(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["self_test"][0]["status"] = "PASS"


def before_the_intent(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["started_at"] = "2026-11-02T08:00:00Z"


def passing_case(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["self_test"][0]["case"] = "faster_pass"


def self_test_twice(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["self_test"] *= 2


def repeated_blocks(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["repeats"] = 3


def fewer_than_no_repeats(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["repeats"] = -1


def unknown_parent(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["parents"] = sorted([*predicate["parents"], digest_of("never")])


def no_parent(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["parents"] = []


def cost_below_nothing(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["costs"][0]["seconds"] += 100
    predicate["costs"][1]["seconds"] -= 100


def self_test_said_otherwise(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["self_test"][0]["status"] = "NOT_RUN"


def cost_of_nothing_planned(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["costs"].append({"what": "gate other", "seconds": 0})


def evidence_elsewhere(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["evidence"]["files"]["evidence/../../etc/passwd"] = digest_of("x")


def evidence_of_no_window(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["evidence"]["files"]["evidence/disturbed/warm-up.1.json"] = digest_of("x")
    predicate["repeats"] = 1


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
        (claim_a_sandbox, "isolation is not that of the boots"),
        (stale_library, r"rank 1 loaded \w+ as lna2"),
        (stale_plugin, "rank 0 imported plugin"),
        (library_not_loaded, "rank 1 did not load the library of lna2"),
        (other_engine, "engine .* answered"),
        (other_grader, "other graders than were sealed"),
        (hide_seat_time, "costs are not the boots' seat time"),
        (claim_a_witness, "outside witnesses do not follow"),
        (no_self_test, "not shown to fail"),
        (passed_self_test, "not shown to fail"),
        (self_test_said_otherwise, "says something else about its must-fail case"),
        (cost_of_nothing_planned, "costs of what was not planned"),
        (evidence_elsewhere, "evidence of no planned window"),
        (evidence_of_no_window, "evidence of no planned window"),
        (self_test_twice, "not shown to fail"),
        (passing_case, "what is no must-fail case"),
        (repeated_blocks, "measured again are not those set aside"),
        (fewer_than_no_repeats, "measured again are not those set aside"),
        (unknown_parent, "does not follow its intent alone"),
        (no_parent, "does not follow its intent alone"),
        (cost_below_nothing, "costs are not the boots' seat time"),
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


def own_case(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    predicate["self_test"][0]["case"] = "a-case-of-their-own_fail"


def test_who_showed_a_gate_a_case_of_their_own_is_not_refused(
    folder: Path, demo_runner: PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cases come and go with checkouts: the gate is shown one of this checkout's, and verify says so."""
    assert check(folder).unknown_cases == ()
    forge(folder, demo_runner, own_case)
    assert check(folder).unknown_cases == ("speed a-case-of-their-own_fail",)
    monkeypatch.setattr(verify_statement, "shown", lambda name, version, case: Status.PASS)
    with pytest.raises(TrustError, match="a gate of this checkout passes its must-fail case"):
        check(folder)


def test_another_trusted_runner_signs_no_report_over_an_intent_of_somebody_else(
    folder: Path, demo_runner: PrivateKey
) -> None:
    other = PrivateKey.generate()
    trust_key(repository_file(folder.parents[2]), signer_line("runner", "demo-other", other.public))
    forge(folder, demo_runner, lambda predicate, record: None)
    assert check(folder).signers == ("runner:demo-runner",)
    forge(folder, other, lambda predicate, record: None)
    with pytest.raises(TrustError, match="another key than its intent"):
        check(folder)


def test_forging_without_an_edit_is_accepted(folder: Path, demo_runner: PrivateKey) -> None:
    forge(folder, demo_runner, lambda predicate, record: None)
    assert check(folder).verdict is Status.PASS


def test_the_first_difference_is_told_in_words(folder: Path, demo_runner: PrivateKey) -> None:
    forge(folder, demo_runner, edit_figure)
    with pytest.raises(TrustError) as refused:
        check(folder)
    assert (refused.value.expected[:6], refused.value.found[:9]) == ("ratio ", "ratio 9.9")
