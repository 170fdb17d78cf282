"""What has to hold before a run costs anything: a decidable order, room on the disk, the seat's engine."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from runner.errors import InputError, StateError
from runner.session import open_run
from runner.steps.preflight import preflight
from runner.steps.seats import load_manifest
from runner.steps.state import Run, Silent
from runner.workspace import make_workspace
from tests.runner.flow_orders import kernel_order, write_order


class Usage(NamedTuple):
    """What ``shutil.disk_usage`` answers."""

    total: int
    used: int
    free: int


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    make_workspace(tmp_path / "workspace")
    monkeypatch.setenv("CARVE_WORKSPACE", str(tmp_path / "workspace"))
    monkeypatch.setenv("CARVE_STATE", str(tmp_path / "state"))
    return open_run(write_order(tmp_path, kernel_order()), progress=Silent())


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[str], None]]:
    """Who was told of an installation, once for each."""
    calls: list[Callable[[str], None]] = []
    monkeypatch.setattr("runner.steps.preflight.ensure", calls.append)
    return calls


def on(run: Run, distribution: str) -> Run:
    """The run on a seat with a real engine of this name and version."""
    return replace(run, manifest=load_manifest("cpu-mini").model_copy(update={"distribution": distribution}))


def test_a_simulated_seat_installs_nothing(run: Run, installed: list[Callable[[str], None]]) -> None:
    assert preflight(run) is run
    assert installed == []


def test_the_seats_engine_is_installed_and_shown(
    run: Run, installed: list[Callable[[str], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.steps.preflight.check", lambda order, manifest: ())
    preflight(on(run, load_manifest("cpu-mini").distribution))
    assert installed == [run.progress.note]
    preflight(on(run, "vllm==0.28.0"))
    assert len(installed) == 1, "an engine of one's own is not replaced"


def test_an_order_that_cannot_be_decided_installs_nothing(run: Run, installed: list[Callable[[str], None]]) -> None:
    with pytest.raises(InputError, match="cannot be decided on seat cpu-mini"):
        preflight(on(run, load_manifest("cpu-mini").distribution))
    assert installed == []


def test_a_full_disk_is_told_in_numbers(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1 << 40, (1 << 40) - (5 << 20), 5 << 20))
    with pytest.raises(StateError) as error:
        preflight(run)
    assert (error.value.where, error.value.found) == (str(run.folder), "5 MiB")


def test_what_is_refused_leaves_no_run(home: Path) -> None:
    order = write_order(home, kernel_order())
    with pytest.raises(InputError, match="cannot be decided on seat cpu-mini"):
        open_run(order, seat="cpu-mini", progress=Silent())
    assert not (home / "state/runs").exists()
