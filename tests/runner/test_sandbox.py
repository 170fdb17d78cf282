"""What a confined command can and cannot do, on machines with and without bubblewrap."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner import sandbox
from runner.craft import sandbox as craft_sandbox
from runner.model.boot import Sandbox
from runner.paths import source_root
from runner.report import isolation_of
from runner.sandbox import Reach, available, confined, python_folders
from tests.runner.records import make_run

LOOK = """
import json, os, sys
import runner.errors, serve.seat
seen = {path: os.path.exists(path) for path in sys.argv[1:]}
caps = [line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")]
processes = [name for name in os.listdir("/proc") if name.isdigit()]
links = [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line]
print(json.dumps({"seen": seen, "caps": caps, "processes": len(processes), "links": links}))
"""


def look(reach: Reach, *paths: Path) -> dict[str, object]:
    """What a Python started with this reach sees."""
    command = [sys.executable, "-P", "-c", LOOK, *map(str, paths)]
    if available().tool != "none":
        command = confined(command, reach, Path("/"))
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    found: dict[str, object] = json.loads(answer.stdout)
    return found


def test_a_confined_command_sees_what_it_is_given_and_nothing_else(tmp_path: Path) -> None:
    given, kept = tmp_path / "given", tmp_path / "kept"
    for folder in (given, kept):
        folder.mkdir()
    root = source_root()
    inside = [given, root / "serve" / "witness", root / "kernels"]
    outside = [
        kept,
        root / "canon",
        root / "reports",
        root / "tests",
        root / "orders",
        root / ".git",
        root / "runner/gates/speed.py",
    ]
    found = look(Reach(reads=(given,), temporary=False), *inside, *outside)
    boxed = available().tool != "none"
    seen = found["seen"]
    assert isinstance(seen, dict)
    assert [seen[str(path)] for path in inside] == [True] * len(inside)
    assert not boxed or [path for path in outside if seen[str(path)]] == []
    if boxed:
        assert found["caps"] == ["0" * 16]
        assert found["processes"] == 2, "bubblewrap's own and the command"
        assert found["links"] == (["lo"] if available().network == "own" else found["links"])


def test_only_named_folders_can_be_written(tmp_path: Path) -> None:
    writable, readable = tmp_path / "writable", tmp_path / "readable"
    for folder in (writable, readable):
        folder.mkdir()
    command = ["/bin/sh", "-c", f"touch {writable}/x; touch {readable}/x; touch {source_root()}/runner/x; true"]
    if available().tool != "none":
        command = confined(command, Reach(reads=(readable,), writes=(writable,), temporary=False), Path("/"))
        subprocess.run(command, check=True, capture_output=True)
        assert list(readable.iterdir()) == []
        assert not (source_root() / "runner/x").exists()
        assert [path.name for path in writable.iterdir()] == ["x"]


def test_keys_inside_what_is_visible_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = tmp_path / "given"
    (given / "config" / "keys").mkdir(parents=True)
    monkeypatch.setenv("CARVE_CONFIG", str(given / "config"))
    found = look(Reach(reads=(given,), temporary=False), given / "config" / "keys")
    assert isinstance(found["seen"], dict)
    assert available().tool == "none" or not found["seen"][str(given / "config" / "keys")]


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keys, seeds, cache and a workspace below a folder of the operating system, where this checkout lies as well."""
    below = tmp_path / "usr" / "src" / "me"
    for name in ("config/keys", "state/runs/r1", "cache/engine", *(f"ws/{each}" for each in ("canon", "orders"))):
        (below / name).mkdir(parents=True)
        (below / name / "secret").write_text("secret\n")
    (tmp_path / "usr" / "tool").write_text("honest\n")
    (tmp_path / "link").symlink_to(below)
    monkeypatch.setenv("CARVE_WORKSPACE", str(below / "ws"))
    for name in ("config", "state", "cache"):
        monkeypatch.setenv(f"CARVE_{name.upper()}", str(below / name))
    more = (str(tmp_path / "usr"), str(source_root()))
    monkeypatch.setattr(sandbox, "_SYSTEM", (*sandbox._SYSTEM, *more))
    folders = [*python_folders(), tmp_path / "usr"]
    monkeypatch.setattr(craft_sandbox, "python_folders", lambda: folders)
    return below


SECRETS = ("config/keys/secret", "state/runs/r1/secret", "cache/engine/secret", "ws/canon/secret", "ws/orders/secret")


def test_ours_below_a_folder_of_the_system_is_hidden(ours: Path, tmp_path: Path) -> None:
    root, tool, named = source_root(), tmp_path / "usr" / "tool", ours / "cache" / "engine"
    secrets = [
        *(ours / name for name in SECRETS),
        *(root / name for name in ("canon/allowed_signers", "tests/gates/__init__.py")),
    ]
    secrets += [root / "reports/README.md", root / "orders/fake-lna2.yaml", root / "runner/gates/speed.py"]
    secrets.remove(named / "secret")
    linked = tmp_path / "old-name"
    linked.symlink_to(tmp_path / "usr")
    again = [linked / path.relative_to(tmp_path / "usr") for path in secrets if path.is_relative_to(tmp_path / "usr")]
    shown = [tool, named / "secret", root / "serve/seat.py", linked / "tool"]
    found = look(Reach(reads=(named, linked), temporary=False), *shown, *secrets, *again)["seen"]
    assert isinstance(found, dict)
    assert all(path.exists() for path in (*secrets, *again))
    assert [path for path in shown if not found[str(path)]] == []
    assert available().tool == "none" or [path for path in (*secrets, *again) if found[str(path)]] == []


def test_a_craftsperson_does_not_see_ours_below_a_folder_of_python(ours: Path, tmp_path: Path) -> None:
    checkout, clone, home, temporary = (tmp_path / name for name in ("checkout", "clone", "home", "tmp"))
    walls = craft_sandbox.Walls(checkout, clone, home, temporary, network=False)
    for folder in (walls.checkout, walls.clone / "canon", walls.home, walls.temporary):
        folder.mkdir(parents=True)
    (walls.clone / "canon" / "mine").write_text("mine\n")
    script = (
        f"cat {tmp_path}/usr/tool {walls.checkout}/canon/mine; cat {' '.join(str(ours / name) for name in SECRETS)}"
    )
    if craft_sandbox.version():
        command = craft_sandbox.command(["/bin/sh", "-c", script], walls)
        assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == "honest\nmine\n"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("exit 0", Sandbox(tool="bubblewrap", version="9.9.9", network="own")),
        ("exit 1", Sandbox(tool="none", network="host", reason="bubblewrap does not work here: no namespaces")),
        (
            'case "$*" in *--unshare-net*) exit 1;; esac',
            Sandbox(tool="bubblewrap", version="9.9.9", network="host", reason="no namespaces"),
        ),
    ],
    ids=["works", "forbidden", "no own network"],
)
def test_what_this_machine_can_do_is_found_by_trying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, expected: Sandbox
) -> None:
    tool = tmp_path / "bwrap"
    version = 'if [ "$1" = --version ]; then echo bubblewrap 9.9.9; exit 0; fi'
    tool.write_text(f"#!/bin/sh\n{version}\necho no namespaces >&2\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert sandbox.available.__wrapped__() == expected


def test_without_bubblewrap_the_reason_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert sandbox.available.__wrapped__().reason == "bubblewrap is not installed"


def test_isolation_is_that_of_the_weakest_boot_that_loads_a_candidate() -> None:
    run = make_run().record
    (planned,), (boot,) = run.plan.boots, run.boots
    open_boot = boot.model_copy(update={"sandbox": Sandbox(tool="none", network="host")})
    assert isolation_of((planned,), (boot,)) == "sandboxed"
    assert isolation_of((planned,), (boot, open_boot)) == "open"
    assert isolation_of((planned.model_copy(update={"libraries": ()}),), (open_boot,)) == "no-candidate"
