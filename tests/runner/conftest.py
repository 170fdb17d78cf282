"""Throw-away keys, a workspace that trusts them, and a gate and an instrument for made-up runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.attest.keys import PrivateKey
from tests.runner.records import RateGate, RateInstrument, make_run, make_workspace, publish


@pytest.fixture(scope="session")
def demo_runner() -> PrivateKey:
    """A runner's key."""
    return PrivateKey.generate()


@pytest.fixture(scope="session")
def demo_adopter() -> PrivateKey:
    """A person's key."""
    return PrivateKey.generate()


@pytest.fixture
def workspace(tmp_path: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey) -> Path:
    """Trusts ``runner:demo-runner`` and ``adopter:demo-adopter``."""
    return make_workspace(tmp_path / "workspace", runner_runner=demo_runner, adopter_adopter=demo_adopter)


@pytest.fixture
def rate_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The made-up run's gate and instrument are this checkout's only ones."""
    monkeypatch.setattr("runner.gates.registry._GATES", (RateGate(),))
    monkeypatch.setattr("serve.instruments.registry._INSTRUMENTS", (RateInstrument(),))


@pytest.fixture
def private_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration folder of the test's own."""
    home = tmp_path / "config"
    monkeypatch.setenv("CARVE_CONFIG", str(home))
    return home


@pytest.fixture
def folder(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> Path:
    """A published report that passes."""
    return publish(workspace, demo_runner, make_run(), tmp_path / "state")
