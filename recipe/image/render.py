"""From a patch order and its seat to the files of a docker build.

    python -m recipe.image.render ORDER REQUIREMENTS DESTINATION

DESTINATION receives ``Dockerfile``, ``manifest.json`` and ``requirements.txt``; a copy of this checkout goes beside
them under ``checkout``. The base image is the order's input ``base-image``: its path without a tag, its revision the
digest.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from recipe.disk import command
from recipe.patch_set import PatchSet, load_set
from runner.digest import sha256_bytes
from runner.errors import CarveError, InputError
from runner.files import write_whole
from runner.model.order import OrderFile, PatchOrder, load_order
from runner.model.seat import SeatManifest
from runner.paths import source_root
from runner.steps.seats import load_manifest

BASE = "base-image"
_REPOSITORY = re.compile(r"[a-z0-9.\-]+(:[0-9]+)?(/[a-z0-9._\-]+)+")
_PINNED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._\-]*)==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)")


def render(file: OrderFile, seat: SeatManifest, requirements: str) -> dict[str, bytes]:
    """The build's files by name; the same arguments give the same bytes.

    ``requirements`` are lines ``name==version --hash=sha256:…``. Raises InputError for a base without a digest, a
    requirement without version and hash, a file of several patches whose result the order does not fix, and a mount
    that the image would also hold.
    """
    order = file.order
    if not isinstance(order, PatchOrder) or order.recipe is None:
        raise InputError("only a patch order describes an image", where=order.id, found=order.kind)
    patches = load_set(order.recipe.patches)
    manifest = {
        "order": {"id": order.id, "version": order.version, "digest": file.digest},
        "base": _base(order),
        "distributions": _distributions(requirements),
        "files": _files(patches, order.recipe.after),
        "environment": dict(sorted(seat.environment.items())),
        "mounts": _mounts(order, patches),
    }
    template = (Path(__file__).parent / "Dockerfile.j2").read_text(encoding="utf-8")
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["quoted"] = _quoted
    dockerfile = environment.from_string(template).render(
        order=order,
        base=manifest["base"],
        arguments=dict(sorted({f"PIN_{_shell(name)}": pin for name, pin in _pins(order).items()}.items())),
        environment=manifest["environment"],
        patches=order.recipe.patches,
    )
    return {
        "Dockerfile": dockerfile.encode(),
        "manifest.json": json.dumps(manifest, indent=1).encode() + b"\n",
        "requirements.txt": requirements.encode(),
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
    return dict(order.target.pins) if order.target else {}


def _shell(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def _quoted(value: str) -> str:
    """A value as a Dockerfile takes it whole: nothing is expanded. InputError for one that has no single line."""
    if not value.isprintable():
        raise InputError("a value of the image is no single line of text", expected="printable text", found=repr(value))
    return '"' + re.sub(r'(["\\$])', r"\\\1", value) + '"'


def _distributions(requirements: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(requirements.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _PINNED.fullmatch(line.strip())
        if match is None:
            raise InputError(
                "a requirement is not pinned",
                where=f"requirements line {number}",
                expected="name==version --hash=sha256:…",
                found=line,
            )
        name = re.sub(r"[-_.]+", "-", match[1]).lower()
        if name in {re.sub(r"[-_.]+", "-", other).lower() for other in found}:
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


def _mounts(order: PatchOrder, patches: PatchSet) -> list[str]:
    """Folders that the seat mounts, ``host:inside`` in the order; none may hold what the image brings."""
    inside = [mount.rpartition(":")[2] for mount in (order.restore.mounts if order.restore else ())]
    for place in inside:
        if not place.startswith("/") or place.rstrip("/") in ("", "/carve") or place.startswith("/carve/"):
            raise InputError(
                "the image brings what the seat mounts", where=place, expected="a folder of the seat's own"
            )
    return sorted(inside)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("order", type=Path)
    parser.add_argument("requirements", type=Path)
    parser.add_argument("destination", type=Path)
    given = parser.parse_args(arguments)
    try:
        files = render(*_given(given.order, given.requirements))
        for name, data in files.items():
            write_whole(given.destination / name, data)
            print(f"{sha256_bytes(data)}  {given.destination / name}")
    except CarveError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"put a copy of {source_root()} into {given.destination / 'checkout'}, then build by digest")
    return 0


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
