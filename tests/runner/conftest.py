"""Throw-away keys, a workspace that trusts them, and a gate and an instrument for made-up runs."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from runner.attest.keys import PrivateKey
from runner.gates.selftest import shown
from runner.workspace import make_workspace as make_empty_workspace
from tests.runner.records import RateGate, RateInstrument, make_run, make_workspace, publish

collect_ignore = [] if find_spec("vllm") else ["test_resume_engine.py"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty workspace, a state folder and a key of this test alone."""
    make_empty_workspace(tmp_path / "workspace")
    monkeypatch.setenv("CARVE_WORKSPACE", str(tmp_path / "workspace"))
    monkeypatch.setenv("CARVE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("CARVE_CONFIG", str(tmp_path / "config"))
    return tmp_path


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
def rate_gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The made-up run's gate and instrument are this checkout's only ones; what real gates said is asked anew.

    No order can name them, so that their plan cannot be compiled either.
    """
    monkeypatch.setattr("runner.gates.registry._GATES", (RateGate(),))
    monkeypatch.setattr("serve.instruments.registry._INSTRUMENTS", (RateInstrument(),))
    monkeypatch.setattr("runner.verify.check_plan", lambda *sealed: None)
    shown.cache_clear()
    yield
    shown.cache_clear()


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
