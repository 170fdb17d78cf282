"""A seat on another machine: the job, the bundle that comes back, and the bundles that are refused."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner import host
from runner.cli import run as command
from runner.digest import sha256_file
from runner.errors import InputError
from runner.model.order import load_order
from runner.paths import source_root, state_home
from runner.steps import build
from serve.adapters import gpu_desk
from tests.instruments.cases_gpu import FACTS

CARD = {"devices": ["GPU-1"], "name": "a card", "driver": "580", "torch": "2.11.0", "cuda": "13.0"}
PARITY = {
    "id": "k6-m4",
    "rows": 4,
    "bits": 6,
    "relative_error": "1e-4",
    "norm_ratio": "1",
    "finite": True,
    "repeat_equal": True,
    "declined": "",
}


@pytest.fixture
def order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An order for the GPU desk in a workspace of its own, whose libraries are files and whose card is made up."""
    for name in ("orders", "canon", "reports"):
        (tmp_path / "workspace" / name).mkdir(parents=True)
    for variable, folder in (("STATE", "state"), ("CONFIG", "config"), ("WORKSPACE", "workspace")):
        monkeypatch.setenv(f"CARVE_{variable}", str(tmp_path / folder))
    monkeypatch.setattr(build, "build_gpu_library", lambda name: library(tmp_path, name))
    monkeypatch.setattr(gpu_desk, "job", answer)
    text = (source_root() / "orders" / "kernel-dense.yaml").read_text(encoding="utf-8")
    asked = yaml.safe_load(text)
    asked["gates"] = [{"name": "parity"}, {"name": "sanitizer", "parameters": {"tools": ["memcheck"]}}]
    path = tmp_path / "order.yaml"
    path.write_text(yaml.safe_dump(asked), encoding="utf-8")
    return path


def library(folder: Path, name: str) -> Path:
    path = folder / "built" / f"{name}.so"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(name.encode())
    return path


def answer(request: dict[str, Any]) -> Any:
    known = {"identify": CARD, "parity": {"cases": [PARITY]}, "sanitizer": FACTS["sanitizer"]}
    return known[request["job"]]


def planned(order: Path) -> tuple[str, Path]:
    """The run that ``execute`` left, and its job."""
    assert command(["execute", str(order), "--quiet"]) == 2
    (folder,) = (state_home() / "runs").iterdir()
    return folder.name, folder / "job"


def test_what_was_measured_away_is_judged_and_signed_here(order: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, job = planned(order)
    assert not any(path.suffix == ".pem" or "key" in path.name for path in (job.iterdir()))
    assert host.main([str(job)]) == 0
    capsys.readouterr()
    assert command(["seal", name, str(job / "bundle"), "--quiet", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    report = Path(told["report"])
    assert command(["verify", str(report), "--deep", "--require", "pass"]) == 0
    assert load_order(order).order.id == report.parent.name
    signed = json.loads(base64.b64decode(json.loads((report / "report.dsse.json").read_bytes())["payload"]))
    assert signed["predicate"]["seat"] == signed["predicate"]["seat"] | {"name": "desk-h200", "label": "real"}
    assert signed["predicate"]["assurance"] == ["perturbation", "profiler"]


def test_the_label_is_real_because_a_card_answered(order: Path) -> None:
    name, job = planned(order)
    host.main([str(job)])
    command(["seal", name, str(job / "bundle"), "--quiet"])
    boot = json.loads(next((state_home() / "runs" / name / "boots").glob("*.json")).read_text())
    assert (boot["label"], boot["ranks"][0]["devices"]) == ("real", ["GPU-1"])


def test_a_bundle_of_another_run_is_refused(order: Path) -> None:
    name, job = planned(order)
    host.main([str(job)])
    names = job / "bundle" / "bundle.json"
    names.write_text(names.read_text().replace(name, "20261130-000000-00000000"))
    assert command(["seal", name, str(job / "bundle"), "--quiet"]) == 3


def test_changed_evidence_is_refused(order: Path) -> None:
    name, job = planned(order)
    host.main([str(job)])
    names = json.loads((job / "bundle" / "bundle.json").read_text())
    names["files"]["evidence/parity.json"] = "0" * 64
    (job / "bundle" / "bundle.json").write_text(json.dumps(names))
    assert command(["seal", name, str(job / "bundle"), "--quiet"]) == 3


def test_another_library_than_was_planned_is_not_measured(order: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, job = planned(order)
    (job / "libraries" / "dense.so").write_bytes(b"faster")
    assert host.main([str(job)]) == 3
    assert "libraries/dense.so" in capsys.readouterr().err
    assert not (job / "bundle").exists()


def test_a_folder_without_a_bundle_is_said_so(order: Path, tmp_path: Path) -> None:
    name, _ = planned(order)
    assert command(["seal", name, str(tmp_path), "--quiet"]) == InputError("x").exit_code


def test_a_run_that_never_was_cannot_be_sealed(order: Path, tmp_path: Path) -> None:
    assert command(["seal", "20261130-000000-00000000", str(tmp_path), "--quiet"]) == 3


def test_a_job_measured_elsewhere_names_the_libraries_that_ran(order: Path) -> None:
    _, job = planned(order)
    host.main([str(job)])
    boot = json.loads(next((job / "boots").glob("*.json")).read_text())
    assert boot["ranks"][0]["libraries"]["dense"] == sha256_file(job / "libraries" / "dense.so")


def test_a_seats_machine_needs_no_key_no_git_and_no_command_line(tmp_path: Path) -> None:
    for absent in ("cryptography", "git", "typer"):
        (tmp_path / absent).mkdir()
        (tmp_path / absent / "__init__.py").write_text("raise ImportError('not on this machine')")
    root = source_root()
    environment = {"PYTHONPATH": os.pathsep.join(map(str, (tmp_path, root, root / "kernels")))}
    code = "import runner.host, serve.client.registry, serve.adapters.gpu_desk"
    subprocess.run([sys.executable, "-P", "-c", code], env=environment, check=True, timeout=60)
