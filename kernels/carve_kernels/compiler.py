"""What all builds of native libraries do alike: the compiler, the sources it reads, one build for each content."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from runner.digest import sha256_file, sha256_json
from runner.errors import InputError, StateError
from runner.paths import cache_home
from runner.sandbox import Reach, available, confined

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def include_closure(folder: Path, source: str) -> list[Path]:
    """``source`` and every file it includes by quotes, directly or not; InputError where one is missing."""
    found: dict[Path, None] = {}
    waiting = [(folder / source).resolve()]
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        if not file.is_relative_to(folder) or not file.is_file():
            raise InputError("kernel source is missing", where=str(file), expected=f"a file below {folder}")
        found[file] = None
        waiting.extend((file.parent / name).resolve() for name in _INCLUDE.findall(file.read_text(encoding="utf-8")))
    return sorted(found)


def compiler_words(variable: str, default: str, what: str, install: str) -> list[str]:
    """The command named by the environment ``variable``, else ``default``. StateError where there is none."""
    words = shlex.split(os.environ.get(variable, default))
    if not words or shutil.which(words[0]) is None:
        raise StateError(
            f"no {what} compiler",
            expected=f"{default} or the compiler named by {variable}",
            found=words[0] if words else f"an empty {variable}",
            next_step=f"{install} or set {variable}",
        )
    return words


def run_compiler(
    command: Sequence[str], folder: Path, source: str, writes: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The command's result; InputError with its own words where it fails.

    With ``writes`` it compiles a candidate's source, which may include whatever it can reach: so it reaches that
    folder, the sources and the compiler alone, where there is a sandbox.
    """
    words = list(command)
    if writes is not None and available().tool != "none":
        words = confined(words, Reach(reads=(folder,), writes=(writes,), temporary=False), folder)
    environment = {"PATH": os.environ.get("PATH", os.defpath)}
    result = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise InputError(
            "kernel does not compile",
            where=str(folder / source),
            expected=f"exit 0 of: {shlex.join(command)}",
            found=result.stderr.strip() or f"exit {result.returncode}",
            next_step="correct the source; the compiler's own words are above",
        )
    return result


def content_digest(folder: Path, source: str, compiler: Sequence[str], files: Sequence[Path], **flags: Any) -> str:
    """Of everything a build depends on: ``files`` below ``folder``, flags, and what the compiler says of itself."""
    return sha256_json(
        {
            "source": source,
            "files": {file.relative_to(folder).as_posix(): sha256_file(file) for file in files},
            "compiler": run_compiler([*compiler, "--version"], folder, source).stdout,
            **flags,
        }
    )


def build_once(digest: str, library: str, make: Callable[[Path, Path], None]) -> Path:
    """``<cache>/build/<digest>/<library>``, made if need be by ``make(finished, work)``, two folders of this build.

    Two builders at once are safe: each works on its own and the finished folder appears by one rename.
    """
    finished = cache_home() / "build" / digest
    if (finished / library).exists():
        return finished / library
    finished.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=finished.parent, prefix=".building-") as work:
        made = Path(work) / "made"
        made.mkdir()
        make(made, Path(work))
        try:
            made.replace(finished)
        except OSError:
            # Another builder was first; its library has the same content. Anything else is a true failure.
            if not (finished / library).exists():
                raise
    return finished / library
