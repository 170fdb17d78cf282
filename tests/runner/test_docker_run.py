"""A whole run on a docker seat, from the order to the signed report, with the stand-in for docker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner.cli import run
from runner.model.seat import Canonical, SeatManifest
from runner.paths import source_root
from tests.runner.flow_orders import HEAD, write_order
from tests.serve.adapters.docker_stand_in import Daemon, World
from tests.serve.adapters.test_docker import manifest_of, world_of

PACK = "recipe/mini/pack"
DRIVER = "#!/bin/sh\nprintf '%s\\n' "


def order(folder: Path) -> Path:
    """One short boot, and the standing one after it."""
    head = HEAD.format(name="small-docker", kind="gate", seat="contained").replace("pack: toy", f"pack: {PACK}")
    gates = "gates:\n  - name: resolved\n  - {name: finish, windows: {texts: 3, tokens: 16}}\n  - name: restore\n"
    return write_order(folder, head + gates)


def seat(folder: Path, monkeypatch: pytest.MonkeyPatch) -> SeatManifest:
    """A docker seat that every command knows."""
    made = manifest_of(folder)
    assert made.container is not None
    container = made.container.model_copy(update={"canonical": Canonical(kv_tokens=8192)})
    made = made.model_copy(update={"name": "contained", "pack": PACK, "container": container})
    for place in ("check", "session", "plan_text", "brief.render", "status"):
        monkeypatch.setattr(f"runner.{place}.load_manifest", lambda _: made)
    return made


def execute(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], world: World
) -> tuple[int, dict[str, Any], Daemon]:
    """Exit code, verdicts and reasons by gate, and the daemon as it was left."""
    devices = seat(folder, monkeypatch).machine
    assert devices is not None
    with world_of(folder, monkeypatch, world) as daemon:
        driver = folder / "bin" / "nvidia-smi"
        driver.write_text(DRIVER + " ".join(map(str, devices.devices)))
        driver.chmod(0o755)
        capsys.readouterr()
        code = run(["execute", str(order(folder)), "--json"])
        told = capsys.readouterr()
        assert told.out, told.err
        answer = json.loads(told.out)
    verdicts = {one["gate"].split("@")[0]: one for one in answer["verdicts"]}
    return code, verdicts | {"report": answer["report"]}, daemon


def test_a_run_in_containers_passes_and_verifies(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, verdicts, daemon = execute(home, monkeypatch, capsys, World())
    report = Path(verdicts.pop("report"))
    assert {name: one["status"] for name, one in verdicts.items()} == dict.fromkeys(verdicts, "PASS"), verdicts
    assert code == 0
    assert run(["verify", "--deep", "--require", "pass", str(report)]) == 0
    assert daemon.containers == {}
    started = [call for call in daemon.calls if call[0] == "run"]
    assert len(started) == 2, "the boot of the plan, and the standing one"
    assert "CARVE_STRICT=1" in started[1]
    text = (report / "report.md").read_text()
    assert str(home) not in text.replace(str(home / "extension.so"), "").replace(str(home / "cache"), "")


def test_a_variable_that_the_engine_resets_fails_by_name(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, verdicts, _ = execute(home, monkeypatch, capsys, World(reset={"VLLM_PLUGINS": "other"}))
    assert code == 1
    assert verdicts["resolved"]["status"] == verdicts["restore"]["status"] == "FAIL"
    assert "environment.VLLM_PLUGINS" in verdicts["resolved"]["reasons"][0]
    assert "environment.VLLM_PLUGINS stood at carve_exl3 and is other" in verdicts["restore"]["reasons"]


def test_what_the_seats_machine_lacks_ends_it_with_2(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seat(home, monkeypatch)
    with world_of(home, monkeypatch, World(images={})):
        assert run(["execute", str(order(home)), "--quiet"]) == 2
    told = capsys.readouterr().err
    assert "the seat's image is not here" in told
    assert "no NVIDIA driver answers" in told
    assert not list((home / "state").glob("runs/*"))


def test_the_plan_names_every_boots_command(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seat(home, monkeypatch)
    assert run(["plan", str(order(home)), "--json"]) == 0
    launch = json.loads(capsys.readouterr().out)["launch"]
    assert list(launch) == ["shared-a"]
    words = launch["shared-a"]
    assert words[:4] == ["docker", "run", "--name", "carve-{run}-shared-a"]
    assert f"type=bind,src={source_root() / PACK},dst=/pack,readonly" in words
    assert "type=bind,src={library incumbent},dst=/carve/libraries/incumbent.so,readonly" in words
    assert "127.0.0.1:{port}:8000" in words
