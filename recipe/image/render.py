"""From a patch order and its seat to the files of a docker build.

    python -m recipe.image.render ORDER REQUIREMENTS DESTINATION

DESTINATION receives ``requirements.txt``, ``manifest.json`` and, last of all, ``Dockerfile``; a copy of this checkout
goes beside them under ``checkout``. The base image is the order's input ``base-image``: its path without a tag, its
revision the digest. Every pin of the order is a build argument; its value is read back from the image when it starts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import posixpath
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from recipe.disk import command
from recipe.patch_set import PatchSet, load_set, refuse_other
from runner.digest import sha256_bytes
from runner.errors import InputError
from runner.files import write_whole
from runner.model.order import OrderFile, PatchOrder, load_order
from runner.model.seat import SeatManifest
from runner.paths import source_root
from runner.steps.seats import load_manifest

BASE = "base-image"
HOME = "/usr/local/share/carve-image"
"""What the image brings of ours: checkout and manifest."""
_WORD = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_WORD}(:[0-9]{{1,5}})?(/{_WORD})+")
_PINNED = re.compile(
    r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==([0-9][0-9A-Za-z.!+_-]*)((?: --hash=sha256:[0-9a-f]{64})+)"
)


def render(file: OrderFile, seat: SeatManifest, requirements: str) -> dict[str, bytes]:
    """The build's files by name; the same arguments give the same bytes.

    ``requirements`` are lines ``name==version --hash=sha256:…``. Raises InputError for a base without a digest, a
    requirement without version and hash, a patch of another distribution than the order's, another version required
    than what is patched, two pins that would be one argument, a file of several patches whose result the order does not
    fix, and a mount that would hide what the image brings.
    """
    order = file.order
    if not isinstance(order, PatchOrder) or order.recipe is None:
        raise InputError("only a patch order describes an image", where=order.id, found=order.kind)
    patches, pins = load_set(order.recipe.patches), _pins(order)
    refuse_other(patches, order.recipe.distribution)
    manifest = {
        "order": {"id": order.id, "version": order.version, "digest": file.digest},
        "base": _base(order),
        "distributions": _patched(order.recipe.distribution, _distributions(requirements)),
        "files": _files(patches, order.recipe.after),
        "environment": dict(sorted({**seat.environment, **pins}.items())),
        "mounts": _mounts(order, seat),
    }
    template = (Path(__file__).parent / "Dockerfile.j2").read_text(encoding="utf-8")
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["quoted"] = _quoted
    dockerfile = environment.from_string(template).render(
        order=order,
        base=manifest["base"],
        arguments=pins,
        environment=dict(sorted(seat.environment.items())),
        patches=order.recipe.patches,
        home=HOME,
    )
    return {
        "requirements.txt": requirements.encode(),
        "manifest.json": json.dumps(manifest, indent=1).encode() + b"\n",
        "Dockerfile": dockerfile.encode(),
    }


def _base(order: PatchOrder) -> str:
    found = [given for given in order.inputs if given.name == BASE]
    if len(found) != 1 or not _REPOSITORY.fullmatch(found[0].path) or len(found[0].revision or "") != 64:
        raise InputError(
            "the base image is not pinned",
            where=f"{order.id}: inputs: {BASE}",
            expected="a registry path without a tag, and as revision the 64 digits of its digest",
            found=f"{found[0].path} at {found[0].revision}" if found else "no such input",
        )
    return f"{found[0].path}@sha256:{found[0].revision}"


def _pins(order: PatchOrder) -> dict[str, str]:
    """Build arguments by name."""
    found: dict[str, str] = {}
    for name, pin in sorted((order.target.pins if order.target else {}).items()):
        argument = "PIN_" + re.sub(r"[^A-Z0-9]", "_", name.upper())
        if pin == "unknown":
            raise InputError(
                "a pin of the order is unknown", where=f"{order.id}: target.pins.{name}", expected="a digest"
            )
        if argument in found:
            raise InputError("two pins would be one build argument", where=f"{order.id}: target.pins", found=argument)
        found[argument] = pin
    return found


def _patched(distribution: str, required: dict[str, str]) -> dict[str, str]:
    """What is required, and what the order patches: required too, or the base image's own."""
    name, _, version = distribution.partition("==")
    own = {_normal(other): (other, found) for other, found in required.items()}
    other, found = own.get(_normal(name), (name, version))
    if found != version:
        raise InputError(
            "the requirements have another version of what the order patches",
            where=other,
            expected=version,
            found=found,
        )
    return required | {other: version}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _quoted(value: str) -> str:
    """A value as a Dockerfile takes it whole: nothing is expanded. InputError for one that has no single line."""
    if not value.isprintable():
        raise InputError("a value of the image is no single line of text", expected="printable text", found=repr(value))
    return '"' + re.sub(r'(["\\$])', r"\\\1", value) + '"'


def _distributions(requirements: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(requirements.splitlines(), start=1):
        if not line.strip() or (line.startswith("#") and not line.endswith("\\")):
            continue
        match = _PINNED.fullmatch(line.strip())
        if match is None:
            raise InputError(
                "a requirement is not pinned",
                where=f"requirements line {number}",
                expected="name==version --hash=sha256:…",
                found=line,
            )
        if _normal(match[1]) in map(_normal, found):
            raise InputError("a distribution is required twice", where=f"requirements line {number}", found=line)
        found[match[1]] = match[2]
    return found


def _files(patches: PatchSet, after: dict[str, str]) -> dict[str, str]:
    """What each patched file must be in the image, relative to its ``site-packages``."""
    found = {}
    for file, parts in patches.files.items():
        if file not in after and len(parts) > 1:
            raise InputError(
                "several patches edit a file and the order does not fix the result",
                where=file,
                expected="its digest under the order's `after`",
            )
        found[file] = after.get(file, parts[0][1].after)
    return found


def _mounts(order: PatchOrder, seat: SeatManifest) -> list[str]:
    """What the seat mounts, by its manifest and by the order (``host:inside[:ro]``); none may hide the image's own."""
    mounts = order.restore.mounts if order.restore else ()
    inside = [re.sub(r":(ro|rw)$", "", mount).rpartition(":")[2] for mount in mounts]
    inside += [mount.inside for mount in seat.container.mounts] if seat.container else []
    for place in inside:
        plain = place.startswith("/") and posixpath.normpath(place) == (place.rstrip("/") or "/") and place[:2] != "//"
        if not plain or f"{HOME}/".startswith(f"{place.rstrip('/')}/") or place.startswith(f"{HOME}/"):
            raise InputError(
                "the image brings what the seat mounts",
                where=place,
                expected=f"a plain path of the seat's own, not {HOME} nor a folder above it",
            )
    return sorted({place.rstrip("/") for place in inside})


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("order", type=Path)
    parser.add_argument("requirements", type=Path)
    parser.add_argument("destination", type=Path)
    given = parser.parse_args(arguments)
    files = render(*_given(given.order, given.requirements))
    with contextlib.suppress(FileNotFoundError):  # no build begins with files of two renderings
        (given.destination / "Dockerfile").unlink()
    for name, data in files.items():
        write_whole(given.destination / name, data)
        print(f"{sha256_bytes(data)}  {given.destination / name}")
    place = shlex.quote(str(given.destination / "checkout"))
    print(f"next: mkdir {place} && git -C {shlex.quote(str(source_root()))} archive HEAD | tar -x -C {place}")


def _given(order: Path, requirements: Path) -> tuple[OrderFile, SeatManifest, str]:
    """Order, seat and requirements. InputError for what cannot be read."""
    file = load_order(order)
    target: Any = getattr(file.order, "target", None)
    if target is None:
        raise InputError("the order names no seat", where=str(order))
    try:
        text = requirements.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("the requirements cannot be read", where=str(requirements), found=str(error)) from error
    return file, load_manifest(target.seat), text


if __name__ == "__main__":
    sys.exit(command(main))
