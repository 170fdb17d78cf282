"""What is missing on this machine is said in one list, before anything is built or booted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from runner.model.order import load_order
from runner.model.seat import SeatManifest
from runner.paths import source_root
from runner.readiness import missing
from runner.steps.seats import load_manifest
from tests.serve.adapters.docker_stand_in import World
from tests.serve.adapters.test_docker import DEVICES, manifest_of, world_of

ORDER = load_order(source_root() / "orders" / "fake-lna2.yaml").order
DRIVER = f"#!/bin/sh\nprintf '%s\\n' {DEVICES[0]} {DEVICES[1]}\n"


def seat_of(folder: Path, **changes: object) -> SeatManifest:
    """The toy in a container, with a pack."""
    pack = folder / "pack"
    pack.mkdir(exist_ok=True)
    (pack / "config.json").write_text("{}")
    return manifest_of(folder).model_copy(update={"pack": str(pack), **changes})


def driver(folder: Path) -> None:
    """A driver that lists the seat's devices; the stand-in's folder is first on the path."""
    program = folder / "bin" / "nvidia-smi"
    program.write_text(DRIVER)
    program.chmod(0o755)


def test_nothing_is_missing_on_the_seats_own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world_of(tmp_path, monkeypatch) as daemon:
        driver(tmp_path)
        assert missing(ORDER, seat_of(tmp_path)) == ()
        assert not [call for call in daemon.calls if call[0] in ("run", "stop", "rm")]


def test_everything_missing_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seat = seat_of(tmp_path)
    (tmp_path / "extension.so").write_bytes(b"another")
    shutil.rmtree(tmp_path / "pack")
    with world_of(tmp_path, monkeypatch, World(images={})):
        told = "\n".join(missing(ORDER, seat))
    for part in (
        "the seat's image is not here",
        f"mount /pack: {tmp_path}/pack is not on this machine",
        "mount /carve/extension.so",
        f"devices {DEVICES[0]}, {DEVICES[1]}: no NVIDIA driver answers",
    ):
        assert part in told


def test_a_device_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seat = seat_of(tmp_path)
    assert seat.machine is not None
    machine = seat.machine.model_copy(update={"devices": (*DEVICES, 7)})
    with world_of(tmp_path, monkeypatch):
        driver(tmp_path)
        assert missing(ORDER, seat.model_copy(update={"machine": machine})) == (
            "seat fake-tp2: device 7 is not on this machine",
        )


def test_a_server_that_does_not_answer() -> None:
    (line,) = missing(ORDER, load_manifest("attach"))
    assert "no server answers on http://127.0.0.1:8899" in line


def test_rows_that_graphs_capture_are_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FL-08, FL-27: 4 texts with 3 drafts are captured at 4, 8 and 16 rows; tuning inside a capture ends the engine."""
    monkeypatch.setenv("PATH", str(tmp_path))
    campaign = load_manifest("ohtani-tp8")
    assert not [line for line in missing(ORDER, campaign) if "not tuned" in line]
    wider = campaign.model_copy(update={"arguments": campaign.arguments | {"cudagraph_capture_sizes": [1, 2, 4, 5]}})
    (line,) = [line for line in missing(ORDER, wider) if "not tuned" in line]
    assert "coop_autotune_v1.bin is not tuned for 20 rows, which graphs capture" in line


def test_a_source_that_nobody_brings_is_missing() -> None:
    order = load_order(source_root() / "orders" / "mini-half-k.yaml").order
    seat, name = load_manifest("cpu-mini"), "kernels/cpu/nowhere.cpp"
    candidate = order.candidate.model_copy(update={"sources": (name,), "files_allowed": ()})  # type: ignore[union-attr]  # a kernel order
    found = missing(order.model_copy(update={"candidate": candidate}), seat)
    assert f"source {source_root() / name} does not exist" in found
