"""``restore`` on a docker seat: the canonical container comes up once more and is counted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from runner.model.configuration import pairs
from runner.model.order import load_order
from runner.model.order.contract import Restore
from runner.model.seat import Canonical, LogCount, SeatManifest
from runner.paths import source_root
from runner.steps.journal import Journal
from runner.steps.restore import STANDING, came_back
from runner.steps.state import Run, Silent
from serve.adapters.docker_launch import PORT
from serve.adapters.docker_readback import launch_from
from tests.serve.adapters.docker_stand_in import World
from tests.serve.adapters.test_docker import booted, manifest_of, world_of

COUNTED = Canonical(
    kv_tokens=8192,
    log_lines=(LogCount(text="plugin ready on rank", count=2), LogCount(text="F2 DENSE_GROUP", count=0)),
)


@dataclass(frozen=True)
class Difference:
    """A fault of the world and the field that shows it."""

    world: World
    name: str
    canonical: str
    found: str


DIFFERENCES = (
    Difference(
        World(adds="/engine/attention.py"), "container.mount./engine/attention.py", "(not there)", "/srv/other writable"
    ),
    Difference(World(drops="/carve/extension.so"), "container.mount./carve/extension.so", "", "(absent)"),
    Difference(World(says="INFO F2 DENSE_GROUP=1 ACTIVE\n"), "log lines with 'F2 DENSE_GROUP'", "0", "1"),
)


def manifest(folder: Path, **canonical: Any) -> SeatManifest:
    """The toy's container with what is counted on it."""
    made = manifest_of(folder)
    assert made.container is not None
    container = made.container.model_copy(update={"canonical": COUNTED.model_copy(update=canonical)})
    (folder / "pack").mkdir(exist_ok=True)
    (folder / "pack" / "config.json").write_text("{}")
    return made.model_copy(update={"container": container, "pack": str(folder / "pack")})


def run_on(folder: Path, seat: SeatManifest) -> Run:
    """A run whose boots have ended."""
    return Run(
        name="r1",
        folder=folder,
        workspace=folder,
        order=load_order(source_root() / "orders" / "fake-lna2.yaml"),
        manifest=seat,
        journal=Journal(folder / "journal.jsonl"),
        progress=Silent(),
        started_at="2026-11-30T12:00:00Z",
    )


def different(folder: Path, seat: SeatManifest) -> dict[str, tuple[str, str]]:
    """What did not come back, by name: (canonical, found)."""
    asked, answer, left = came_back(run_on(folder, seat))
    assert left == ()
    return {
        pair.name: (pair.requested, pair.resolved) for pair in pairs(asked, answer) if pair.requested != pair.resolved
    }


def test_the_canonical_container_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world_of(tmp_path, monkeypatch) as daemon:
        assert different(tmp_path, manifest(tmp_path)) == {}
        (line,) = [call for call in daemon.calls if call[0] == "run"]
        assert "CARVE_STRICT=1" in line, "production, not gates"
        assert daemon.containers == {}


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda one: one.name)
def test_what_did_not_come_back_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, difference: Difference
) -> None:
    """FL-10: the KV size and health looked right; mounts, variables and log lines did not."""
    with world_of(tmp_path, monkeypatch, difference.world):
        canonical, found = different(tmp_path, manifest(tmp_path))[difference.name]
    assert canonical.startswith(difference.canonical)
    assert found == difference.found


def test_a_line_that_comes_late_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(says="INFO F2 DENSE_GROUP=1 ACTIVE\n", holds_back="carve mark")
    with world_of(tmp_path, monkeypatch, world):
        assert different(tmp_path, manifest(tmp_path)) == {"log lines with 'F2 DENSE_GROUP'": ("0", "1")}


def test_another_kv_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world_of(tmp_path, monkeypatch):
        assert different(tmp_path, manifest(tmp_path, kv_tokens=396656)) == {"kv_tokens": ("396656", "8192")}


def test_what_the_order_itself_says_of_the_state_it_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seat = manifest(tmp_path)
    run = run_on(tmp_path, seat)
    left = Restore(kv_tokens=395069, environment={"VLLM_PLUGINS": "carve_exl3", "LNA_EXL3_DENSE_GROUP": "0"})
    order = run.order.model_copy(update={"order": run.order.order.model_copy(update={"restore": left})})
    with world_of(tmp_path, monkeypatch):
        asked, answer, _ = came_back(replace(run, order=order))
    assert {pair.name: pair.resolved for pair in pairs(asked, answer) if pair.requested != pair.resolved} == {
        "kv_tokens": "8192",
        "environment.LNA_EXL3_DENSE_GROUP": "(absent)",
    }


def test_a_standing_configuration_that_does_not_come_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world_of(tmp_path, monkeypatch, World(images={})):
        canonical, found = different(tmp_path, manifest(tmp_path))[STANDING]
    assert canonical == "comes up"
    assert "image is not here" in found


def test_the_readback_of_a_boot_gives_its_launch_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the canon and a revert print is what docker read back, not what somebody typed."""
    with world_of(tmp_path, monkeypatch) as daemon:
        boot = booted(tmp_path)
        boot.stop()
    (line,) = [call for call in daemon.calls if call[0] == "run"]
    launch = launch_from(boot.record.resolved, "fake-tp2", str(PORT))
    assert launch is not None
    again = launch.argv()
    assert again[again.index("--publish") + 1] == "127.0.0.1:8000:8000"
    kept = ("--gpus", "--ulimit", "--shm-size", "--entrypoint")
    assert [again[again.index(word) + 1] for word in kept] == [line[line.index(word) + 1] for word in kept]
    assert again[again.index("--entrypoint") :] == line[line.index("--entrypoint") :]
    assert {word for word in again if word.startswith("CARVE_")} == {word for word in line if word.startswith("CARVE_")}
    assert "type=bind,src={pack},dst=/pack,readonly" in again
    assert str(tmp_path / "pack") not in " ".join(again)
    assert launch_from({"variant": "incumbent"}, "cpu-mini", "1") is None
