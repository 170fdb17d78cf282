"""The folder of the pack that a seat serves: a committed one, or one made on first use."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

from runner.digest import sha256_bytes
from runner.errors import InputError
from runner.model.seat import SeatManifest
from runner.paths import cache_home, source_root

_GENERATED = re.compile(r"generate:(?P<module>[a-z_.]+)(:(?P<arguments>[a-z_]+=\d+(,[a-z_]+=\d+)*))?")


def pack_folder(manifest: SeatManifest, committed: Path) -> Path:
    """``committed``, or for ``generate:<module>:<name=number,...>`` a folder in the user's cache.

    A generated one is keyed by the manifest's text and the recipe's source. Raises InputError where there is no pack.
    """
    if not manifest.pack.startswith("generate:"):
        if not (committed / "config.json").is_file():
            raise InputError("the seat's pack is missing", where=str(committed), expected="a folder with config.json")
        return committed
    asked = _GENERATED.fullmatch(manifest.pack)
    if asked is None:
        raise InputError(
            "the seat's pack cannot be generated",
            where=f"seat {manifest.name}, pack",
            expected="generate:<module>:<name=number,...>",
            found=manifest.pack,
        )
    source = source_root() / (asked["module"].replace(".", "/") + ".py")
    key = sha256_bytes(manifest.pack.encode() + source.read_bytes())
    folder = cache_home() / "packs" / f"{manifest.name}-{key[:16]}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        pairs = (pair.split("=") for pair in (asked["arguments"] or "").split(",") if pair)
        generate = pkgutil.resolve_name(f"{asked['module']}:generate")
        generate(folder, **{name: int(value) for name, value in pairs})
    return folder
