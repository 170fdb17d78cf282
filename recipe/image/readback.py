"""What an image must contain, read back inside it before the engine starts.

    python -m recipe.image.readback MANIFEST [-- COMMAND...]
    python -m recipe.image.readback --built MANIFEST

The image's entry point: with a fault the engine never starts and the exit code is 3. Health 200 from an image with the
wrong plugin baked in looks right; so versions, patched files, environment and mounts are compared, not assumed. With
``--built`` nothing is mounted yet: the last step of the build, which ends where something lies that the seat mounts.
"""

from __future__ import annotations

import json
import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from recipe.bytecode import instead_of
from runner.digest import sha256_file

MOUNTS = Path("/proc/self/mountinfo")


def faults(
    manifest: Mapping[str, Any], site: Path, environment: Mapping[str, str], mounted: frozenset[str] | None
) -> Iterator[str]:
    """Everything in which this image is not what its manifest says.

    ``site`` holds the installed packages, ``mounted`` the mount points; None while the image is built.
    """
    if not manifest["distributions"] and not manifest["files"]:
        yield "the manifest names nothing that could be compared"
    found: dict[str, set[str]] = {}
    for one in distributions(path=[str(site)]):
        if one.metadata["Name"]:  # a broken installation leaves nameless ones
            found.setdefault(_name(one.metadata["Name"]), set()).add(one.version)
    for name, version in manifest["distributions"].items():
        now = " and ".join(sorted(found.get(_name(name), {"none"})))
        if now != version:
            yield f"distribution {name}: expected {version}, found {now}"
    for file, digest in manifest["files"].items():
        path = site / file
        now = sha256_file(path) if path.is_file() else "no file"
        if now != digest:
            yield f"file {file}: expected {digest}, found {now}"
        for suffix in (".rej", ".orig"):
            if path.with_name(path.name + suffix).exists():
                yield f"file {file}{suffix}: left by a failed patch"
        for other in instead_of(path) if path.suffix == ".py" and path.is_file() else ():
            yield f"file {file}: {other.relative_to(path.parent)} is of other code, and would run in its place"
    for name, value in manifest["environment"].items():
        if (now := environment.get(name, "unset")) != value:
            yield f"environment {name}: expected {value!r}, found {now!r}"
    yield from _mount_faults([place.rstrip("/") or "/" for place in manifest["mounts"]], site, mounted)


def _mount_faults(wanted: list[str], site: Path, mounted: frozenset[str] | None) -> Iterator[str]:
    for place in map(Path, wanted):
        if mounted is None and _baked(place):
            yield f"mount {place}: baked into the image, which should leave it to the seat"
        elif mounted is not None and str(place) not in mounted:
            yield f"mount {place}: {'baked into the image' if place.exists() else 'absent'}, expected a mount"
        for own in (site, Path(__file__).resolve().parents[2]):
            if own.is_relative_to(place):
                yield f"mount {place}: hides what the image brings in {own}"


def _baked(place: Path) -> bool:
    """Whether anything lies where the seat mounts; an empty folder is a place to mount on."""
    return place.is_symlink() or (any(place.iterdir()) if place.is_dir() else place.exists())


def mount_points(text: str) -> frozenset[str]:
    """Mount points of ``/proc/self/mountinfo``, with its octal escapes undone."""
    places = (line.split()[4] for line in text.splitlines())
    return frozenset(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), place) for place in places)


def _name(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def main(arguments: list[str]) -> int:
    """Compare, then become the command. 3 where something differs, or where there is nothing to compare with."""
    built = arguments[:1] == ["--built"]
    path, separator, command = (arguments[built:] or [""])[0], arguments[1 + built : 2 + built], arguments[2 + built :]
    if not path or separator not in ([], ["--"]) or (built and separator):
        print(__doc__, file=sys.stderr)
        return 3
    site = Path(sysconfig.get_path("purelib"))
    try:
        manifest = json.loads(Path(path).read_bytes())
        mounted = None if built else mount_points(MOUNTS.read_text())
        found = list(faults(manifest, site, os.environ, mounted))
    except (OSError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        found = [f"the manifest cannot be read: {type(error).__name__}: {error}"]
    if found:
        print("\n".join([f"this image is not what {path} says:", *found]), file=sys.stderr)
        return 3
    if command:
        sys.stdout.flush()
        try:
            os.execvp(command[0], command)
        except OSError as error:
            print(f"the engine cannot be started: {command[0]}: {error.strerror}", file=sys.stderr)
            return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
