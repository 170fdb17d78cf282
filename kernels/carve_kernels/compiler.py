"""What all builds of native libraries do alike: the compiler, the sources it reads, one build for each content."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.digest import sha256_bytes, sha256_json
from runner.errors import InputError, StateError
from runner.paths import cache_home
from runner.sandbox import Reach, available, confined

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Sources:
    """A source and every file it includes by quotes, as they were when they were read.

    What is compiled is a copy of these bytes and their digest names the library: an editor or another checkout may
    change the files while a compiler runs for minutes.
    """

    folder: Path
    """Where they were read."""
    source: str
    files: Mapping[str, bytes]
    """By path relative to ``folder``."""

    def digest(self, compiler: Sequence[str], **flags: Any) -> str:
        """Of everything a build depends on: these files, the flags, and what the compiler says of itself."""
        return sha256_json(
            {
                "source": self.source,
                "files": {name: sha256_bytes(data) for name, data in self.files.items()},
                "compiler": _run([*compiler, "--version"], self.folder, self).stdout,
                **flags,
            }
        )

    def write(self, folder: Path) -> None:
        """The copy that is compiled, into a new ``folder``."""
        for name, data in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)


@dataclass(frozen=True)
class Workplace:
    """The folders of one build."""

    sources: Path
    """A copy of the sources alone, in which the compiler runs."""
    work: Path
    finished: Path
    """Becomes the entry of the cache."""


def read_sources(folder: Path, source: str, also: Iterable[Path] = ()) -> Sources:
    """``source`` with what it includes by quotes, directly or not, and ``also``, all below ``folder``.

    InputError where one is missing.
    """
    files: dict[str, bytes] = {}
    waiting = [(folder / source).resolve(), *also]
    while waiting:
        file = waiting.pop()
        if not file.is_relative_to(folder) or not file.is_file():
            raise InputError("kernel source is missing", where=str(file), expected=f"a file below {folder}")
        name = file.relative_to(folder).as_posix()
        if name in files:
            continue
        files[name] = file.read_bytes()
        text = files[name].decode(errors="replace")
        waiting.extend((file.parent / included).resolve() for included in _INCLUDE.findall(text))
    return Sources(folder, source, dict(sorted(files.items())))


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
    command: Sequence[str], sources: Sources, place: Workplace, *, confine: bool = False
) -> subprocess.CompletedProcess[str]:
    """The command's result in the copy of ``sources``; InputError with its own words where it fails.

    A candidate's source may include whatever the compiler can reach: with ``confine`` that is its ``place`` and the
    compiler alone, where there is a sandbox.
    """
    words = list(command)
    if confine and available().tool != "none":
        reach = Reach(reads=(place.sources,), writes=(place.work, place.finished), temporary=False)
        words = confined(words, reach, place.sources)
    return _run(words, place.sources, sources, command)


def _run(
    words: Sequence[str], folder: Path, sources: Sources, meant: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ.get("PATH", os.defpath)}
    result = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise InputError(
            "kernel does not compile",
            where=str(sources.folder / sources.source),
            expected=f"exit 0 of: {shlex.join(meant or words)}",
            found=result.stderr.strip() or f"exit {result.returncode}",
            next_step="correct the source; the compiler's own words are above",
        )
    return result


def build_once(sources: Sources, digest: str, library: str, make: Callable[[Workplace], None]) -> Path:
    """``<cache>/build/<digest>/<library>``, made if need be by ``make`` from a copy of ``sources``.

    Two builders at once are safe: each works on its own and the finished folder appears by one rename.
    """
    finished = cache_home() / "build" / digest
    if (finished / library).exists():
        return finished / library
    finished.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=finished.parent, prefix=".building-") as folder:
        place = Workplace(*(Path(folder) / name for name in ("sources", "work", "finished")))
        for each in (place.sources, place.work, place.finished):
            each.mkdir()
        sources.write(place.sources)
        make(place)
        try:
            place.finished.replace(finished)
        except OSError:
            # Another builder was first; its library has the same content. Anything else is a true failure.
            if not (finished / library).exists():
                raise
    return finished / library
