"""What an image must contain, read back inside it before the engine starts.

    python -m recipe.image.readback MANIFEST [-- COMMAND...]

The image's entry point: with a fault the engine never starts and the exit code is 3. Health 200 from an image with the
wrong plugin baked in looks right; so versions, patched files, environment and mounts are compared, not assumed.
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

from runner.digest import sha256_file

MOUNTS = Path("/proc/self/mountinfo")


def faults(
    manifest: Mapping[str, Any], site: Path, environment: Mapping[str, str], mounted: frozenset[str]
) -> Iterator[str]:
    """Everything in which this image is not what its manifest says.

    ``site`` holds the installed packages, ``mounted`` the mount points.
    """
    named = ((one.metadata["Name"], one.version) for one in distributions(path=[str(site)]))
    found = {_name(name): version for name, version in named if name}  # a broken installation leaves nameless ones
    for name, version in manifest["distributions"].items():
        if (now := found.get(_name(name), "none")) != version:
            yield f"distribution {name}: expected {version}, found {now}"
    for file, digest in manifest["files"].items():
        path = site / file
        now = sha256_file(path) if path.is_file() else "no file"
        if now != digest:
            yield f"file {file}: expected {digest}, found {now}"
        for suffix in (".rej", ".orig"):
            if path.with_name(path.name + suffix).exists():
                yield f"file {file}{suffix}: left by a failed patch"
    for name, value in manifest["environment"].items():
        if (now := environment.get(name, "unset")) != value:
            yield f"environment {name}: expected {value!r}, found {now!r}"
    for place in manifest["mounts"]:
        if place.rstrip("/") not in mounted:
            yield f"mount {place}: {'baked into the image' if Path(place).exists() else 'absent'}, expected a mount"


def mount_points(text: str) -> frozenset[str]:
    """Mount points of ``/proc/self/mountinfo``, with its octal escapes undone."""
    places = (line.split()[4] for line in text.splitlines())
    return frozenset(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), place) for place in places)


def _name(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def main(arguments: list[str]) -> int:
    """Compare, then become the command. 3 where something differs, or where there is nothing to compare with."""
    path, separator, command = (arguments or [""])[0], arguments[1:2], arguments[2:]
    if not path or separator not in ([], ["--"]):
        print(__doc__, file=sys.stderr)
        return 3
    site = Path(sysconfig.get_path("purelib"))
    try:
        manifest = json.loads(Path(path).read_bytes())
        found = list(faults(manifest, site, os.environ, mount_points(MOUNTS.read_text())))
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        found = [f"the manifest cannot be read: {type(error).__name__}: {error}"]
    if found:
        print("\n".join([f"this image is not what {path} says:", *found]), file=sys.stderr)
        return 3
    if command:
        sys.stdout.flush()
        os.execvp(command[0], command)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
