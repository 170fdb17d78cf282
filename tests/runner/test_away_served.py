"""A served order measured on another machine: its job in a clean folder, no git, no keys, another HOME, in parts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runner import session
from runner.cli import run as command
from runner.steps.seats import load_manifest
from tests.runner.flow_orders import kernel_order

ABSENT = ("cryptography", "git", "typer", "rich", "bcrypt")


@pytest.fixture
def job(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """What ``execute`` left for the toy seat as if it stood elsewhere, carried into a folder of its own."""
    away = load_manifest("fake").model_copy(update={"away": True})
    monkeypatch.setattr(session, "load_manifest", lambda name: away)
    order = home / "order.yaml"
    order.write_text(kernel_order(), encoding="utf-8")
    assert command(["execute", str(order), "--json"]) == 2
    made = Path(json.loads(capsys.readouterr().out)["job"])
    return Path(shutil.copytree(made, home / "host" / "job"))


def measure(job: Path, *limit: str) -> subprocess.CompletedProcess[str]:
    """``./measure`` as the host runs it: nothing of this user's environment, and no package that signs or commits."""
    folder = job.parent
    for name in ABSENT:
        (folder / "site" / name).mkdir(parents=True, exist_ok=True)
        (folder / "site" / name / "__init__.py").write_text("raise ImportError('not on this machine')")
    python = folder / "bin" / "python3"
    python.parent.mkdir(exist_ok=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    environment = {"PATH": f"{python.parent}:{os.defpath}", "HOME": str(folder), "PYTHONPATH": str(folder / "site")}
    words = [str(job / "measure"), *limit]
    return subprocess.run(words, env=environment, cwd="/", capture_output=True, text=True, check=False, timeout=120)


def run_of(job: Path) -> str:
    name: str = json.loads((job / "candidate.json").read_bytes())["run"]
    return name


def test_it_is_measured_in_parts_and_signed_here(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    early = measure(job, "0")
    assert early.returncode == 2, early.stderr
    assert "time ended before" in early.stderr
    assert command(["seal", run_of(job), str(job / "bundle"), "--quiet"]) == 3
    assert "the bundle is not whole" in capsys.readouterr().err
    whole = measure(job)
    assert whole.returncode == 0, whole.stderr
    boots = [json.loads(path.read_bytes()) for path in (job / "boots").glob("*.json")]
    assert {boot["label"] for boot in boots} == {"simulated"}
    assert command(["seal", run_of(job), str(job / "bundle"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["report"]
    assert command(["verify", report, "--deep", "--require", "pass"]) == 0


def test_a_part_is_signed_as_a_part(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert measure(job, "0").returncode == 2
    assert command(["seal", run_of(job), str(job / "bundle"), "--partial", "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    decided = [one["gate"] for one in told["verdicts"] if one["status"] in ("PASS", "FAIL")]
    assert decided == ["restore@1"]  # nothing was left behind, which is known although nothing was measured
    assert command(["verify", told["report"]]) == 0


def test_a_changed_file_and_another_machine_are_refused(job: Path) -> None:
    assert measure(job, "0").returncode == 2
    host = job / "host.json"
    host.write_text(json.dumps(json.loads(host.read_bytes()) | {"boot": "another"}))
    refused = measure(job)
    assert (refused.returncode, "begun on another machine" in refused.stderr) == (3, True)
    host.unlink()
    (job / "code/serve/seats/fake.yaml").write_text("name: fake\n")
    refused = measure(job)
    assert (refused.returncode, "the job is not what was written" in refused.stderr) == (3, True)
