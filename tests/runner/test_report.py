"""The report folder: whole, small, readable, the same for the same run."""

from __future__ import annotations

import base64
import json
import os
import random
from pathlib import Path

import pytest

from runner import archive
from runner.attest import dsse
from runner.attest.keys import PrivateKey
from runner.attest.statement import PAYLOAD_LIMIT
from runner.digest import canonical_json, sha256_bytes
from runner.errors import EvidenceError, InputError, StateError
from runner.model.run import RunRecord, SelfTest
from runner.model.verdict import Status
from runner.report import FOLDER_LIMIT, compose, label_of, write_folder
from tests.runner.records import Run, digest_of, make_run, publish


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_a_folder_holds_three_files_within_the_limit(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> None:
    folder = publish(workspace, demo_runner, make_run(), tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["evidence.tar.xz", "report.dsse.json", "report.md"]
    assert size_of(folder) <= FOLDER_LIMIT
    assert len(dsse.parse((folder / "report.dsse.json").read_bytes()).payload) <= PAYLOAD_LIMIT


def test_the_same_run_gives_the_same_bytes(demo_runner: PrivateKey, tmp_path: Path) -> None:
    run = make_run()
    evidence = run.write_evidence(tmp_path / "run")
    first = write_folder(run.record, demo_runner, evidence, tmp_path / "a")
    second = write_folder(run.record, demo_runner, evidence, tmp_path / "b")
    for name in ("report.dsse.json", "report.md", "evidence.tar.xz"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_the_text_says_what_a_reader_asks_first(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> None:
    text = (publish(workspace, demo_runner, make_run(), tmp_path) / "report.md").read_text()
    assert text.startswith("# PASS: mini-lna2 on cpu-mini\n")
    for part in (
        "label cpu",
        "speed@1",
        "lna2 192 at 1 row",
        "nothing-gained_fail",
        "together | 68",
        "24 of 24 evidence",
    ):
        assert part in text


def test_the_text_says_whether_what_was_disturbed_counted(demo_runner: PrivateKey, tmp_path: Path) -> None:
    run = make_run()
    plain = (
        write_folder(run.record, demo_runner, run.write_evidence(tmp_path / "run"), tmp_path / "calm")
    ) / "report.md"
    assert "disturbed" not in plain.read_text()
    first, second, third, *others = run.record.samples
    busy = [one.model_copy(update={"disturbed": ("foreign fraction",)}) for one in (first, second, third)]
    windows = tuple(
        window.model_copy(update={"arm": "incumbent"}) if window.id == third.window else window
        for window in run.record.plan.windows
    )
    plan = run.record.plan.model_copy(update={"windows": windows})
    record = run.record.model_copy(update={"plan": plan, "samples": (busy[0], first, *busy[1:], *others)})
    text = (
        write_folder(record, demo_runner, run.write_evidence(tmp_path / "run"), tmp_path / "busy") / "report.md"
    ).read_text()
    lines = text.partition("## Measured while the machine was disturbed")[2].splitlines()
    assert lines[4:8] == [
        f"| {first.window} | foreign fraction | not counted: it was measured again |",
        f"| {second.window} | foreign fraction | its pair was not counted |",
        f"| {third.window} | foreign fraction | counted |",
        "",
    ]


def test_what_an_order_says_cannot_become_markup(demo_runner: PrivateKey, tmp_path: Path) -> None:
    run = make_run()
    record = run.record.model_copy(update={"environment": {"machine": "a|b\n# <script>"}})
    folder = write_folder(record, demo_runner, run.write_evidence(tmp_path / "run"), tmp_path / "report")
    assert "a&#124;b # &lt;script>" in (folder / "report.md").read_text()


def test_large_evidence_stays_in_the_run_folder_and_is_named(demo_runner: PrivateKey, tmp_path: Path) -> None:
    run = make_run()
    noise = large_evidence(run)
    run = Run(
        run.record.model_copy(
            update={"evidence": {**run.record.evidence, "evidence/kld.json": sha256_bytes(noise)}},
        ),
        {**run.files, "evidence/kld.json": noise},
    )
    folder = write_folder(run.record, demo_runner, run.write_evidence(tmp_path / "run"), tmp_path / "report")
    assert size_of(folder) <= FOLDER_LIMIT
    assert "evidence/kld.json" in (folder / "report.md").read_text()
    kept = {name: digest for name, digest in run.record.evidence.items() if name != "evidence/kld.json"}
    assert archive.read((folder / "evidence.tar.xz").read_bytes(), kept, "archive") == make_run().files


def large_evidence(run: Run) -> bytes:
    """An evidence file that no compression makes small enough."""
    value = json.loads(next(iter(run.files.values())))
    value["facts"]["noise"] = base64.b64encode(random.Random(3).randbytes(400_000)).decode()
    return canonical_json(value)


def test_a_file_that_is_no_evidence_is_never_signed(demo_runner: PrivateKey, tmp_path: Path) -> None:
    run = Run(make_run().record.model_copy(update={"evidence": {"e.json": sha256_bytes(b"{}")}}), {"e.json": b"{}"})
    with pytest.raises(EvidenceError, match="no evidence record"):
        write_folder(run.record, demo_runner, run.write_evidence(tmp_path / "run"), tmp_path / "report")


def test_a_report_without_any_evidence_that_fits_has_no_archive(demo_runner: PrivateKey, tmp_path: Path) -> None:
    noise = large_evidence(make_run())
    run = Run(make_run().record.model_copy(update={"evidence": {"e.json": sha256_bytes(noise)}}), {"e.json": noise})
    folder = write_folder(run.record, demo_runner, run.write_evidence(tmp_path / "run"), tmp_path / "report")
    assert sorted(path.name for path in folder.iterdir()) == ["report.dsse.json", "report.md"]


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_evidence_that_is_not_what_was_measured_is_refused(
    demo_runner: PrivateKey, tmp_path: Path, damage: str
) -> None:
    run = make_run()
    evidence = run.write_evidence(tmp_path / "run")
    file = evidence / "evidence/speed-q0-b0.json"
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(b"{}")
    with pytest.raises(EvidenceError, match=r"speed-q0-b0\.json"):
        write_folder(run.record, demo_runner, evidence, tmp_path / "report")
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    "tests",
    [(), (SelfTest(gate="speed", version=1, case="nothing-gained_fail", status=Status.PASS),)],
    ids=["none", "passed"],
)
def test_a_gate_that_cannot_fail_signs_nothing(demo_runner: PrivateKey, tests: tuple[SelfTest, ...]) -> None:
    record = make_run().record.model_copy(update={"self_tests": tests})
    with pytest.raises(EvidenceError, match="has not shown that it can fail"):
        compose(record, demo_runner)


def test_a_payload_that_is_too_large_is_refused_with_its_size(demo_runner: PrivateKey) -> None:
    record = make_run().record.model_copy(update={"order_text": "x" * 120_000})
    with pytest.raises(InputError, match="at most 100000 bytes") as caught:
        compose(record, demo_runner)
    assert "order" in caught.value.found


def test_what_ran_must_be_what_was_planned(demo_runner: PrivateKey) -> None:
    record = make_run().record.model_copy(update={"subjects": {"pack.header": digest_of("another")}})
    with pytest.raises(EvidenceError, match=r"pack\.header"):
        compose(record, demo_runner)


def test_an_existing_report_is_never_written_over(demo_runner: PrivateKey, tmp_path: Path) -> None:
    run = make_run()
    evidence = run.write_evidence(tmp_path / "run")
    target = write_folder(run.record, demo_runner, evidence, tmp_path / "report")
    before = (target / "report.dsse.json").read_bytes()
    with pytest.raises(StateError, match="written already"):
        write_folder(run.record, demo_runner, evidence, target)
    assert (target / "report.dsse.json").read_bytes() == before


def test_a_full_disk_leaves_nothing(demo_runner: PrivateKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    run = make_run()
    evidence = run.write_evidence(tmp_path / "run")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StateError, match="No space left"):
        write_folder(run.record, demo_runner, evidence, tmp_path / "reports" / "report")
    assert list((tmp_path / "reports").iterdir()) == []


def test_the_label_is_the_weakest_that_answered() -> None:
    def boots(*labels: str) -> RunRecord:
        boot = make_run().record.boots[0]
        return make_run().record.model_copy(
            update={"boots": tuple(boot.model_copy(update={"label": label}) for label in labels)}
        )

    assert label_of(boots("real", "cpu", "real").boots) == "cpu"
    assert label_of(boots("real").boots) == "real"
    assert label_of(()) == "none"
    refused = boots("simulated").boots[0].model_copy(update={"engine": {}})
    assert label_of((*boots("cpu").boots, refused)) == "cpu"
