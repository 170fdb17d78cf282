"""Give one piece of work too small a disk, or one that cannot be written to: ``... starving WORK FOLDER FRACTION...``.

To be run as root of a mount namespace of its own (``unshare --map-root-user --mount``). Each FRACTION of the bytes that
the work needs is the size of a small file system in which it is done; ``ro`` is one that cannot be written to. The work
must end with a StateError and without a product, and on more room the same call must give the same bytes. Where nothing
can be mounted, a limit on the size of a file stands for the small disk. Answers with one line of JSON.
"""

from __future__ import annotations

import json
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from runner.errors import StateError
from tests.recipe.overlays import contents
from tests.recipe.works import WORKS, Work


def main(name: str, folder: Path, fractions: list[str]) -> list[str]:
    """What the user was told, each time; AssertionError where a promise is broken."""
    folder.mkdir(parents=True, exist_ok=True)
    given = WORKS[name](folder, "small")
    inputs = {place: contents(place) for place in given.inputs}
    given.prepare(folder / "whole")
    begun = _used(folder / "whole")
    given.do(folder / "whole")
    expected, needed = contents(folder / "whole/product"), _used(folder / "whole")
    usage = shutil.disk_usage(folder)
    told = []
    for fraction in fractions:
        place = folder / f"disk-{fraction}"
        place.mkdir()
        if fraction != "ro":  # the work itself looks for room before it begins: here it has to be found out later
            shutil.disk_usage = lambda _: usage  # type: ignore[assignment]
        room = needed if fraction == "ro" else begun + float(fraction) * (needed - begun)
        told.append(_starved(given, place, int(room), expected, read_only=fraction == "ro"))
    assert {place: contents(place) for place in given.inputs} == inputs, "inputs are never written to"
    return told


def _starved(given: Work, place: Path, room: int, expected: dict[str, bytes], *, read_only: bool) -> str:
    mounted = _mount(place, f"size={max(room, 4096)}")  # none at all would mean no limit
    given.prepare(place)
    if mounted and read_only:
        assert _mount(place, "remount,ro")
    elif not mounted:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        largest = max(len(content) for content in expected.values())
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest // 2, resource.RLIM_INFINITY))
    try:
        given.do(place)
    except StateError as error:
        told = f"{error.what}: {error.found} ({error.next_step})"
    else:
        raise AssertionError("there was no room, and nobody noticed")
    assert not given.finished(place / "product", expected)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    if mounted:
        assert _mount(place, "remount,rw,size=64m")
    given.do(place)
    assert contents(place / "product") == expected, "on more room the same bytes come"
    left = {path.name for path in place.iterdir()} - {"product", "work"}
    assert not left, f"left behind: {left}"
    return told


def _mount(place: Path, options: str) -> bool:
    argv = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def _used(folder: Path) -> int:
    """Bytes of files, in whole blocks; folders take none of a small disk's."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])))
