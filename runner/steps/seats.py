"""Which adapter starts the engine of a seat."""

from __future__ import annotations

import pkgutil
from pathlib import Path
from typing import Any

from recipe.mini import expert_pack
from runner.errors import InputError, SeatError
from runner.model.boot import IN_A_CONTAINER, NO_SANDBOX, Sandbox
from runner.model.plan import PlannedBoot
from runner.model.seat import SeatManifest
from runner.paths import source_root
from runner.sandbox import available
from runner.yaml_strict import Document, read
from serve.seat import Seat

SEATS = Path("serve/seats")
LIKE = "like"
"""Key of a manifest that differs from another one in a few fields."""
_HOST_CHECKS = {"docker": "serve.adapters.docker_host:absent", "attach": "serve.adapters.attach:absent"}
"""By adapter, what tells a machine apart that does not have the seat."""
_PROCESSOR_DESK = "serve.adapters.desk:DeskSeat"
_GPU_DESK = "serve.adapters.gpu_desk:GpuDeskSeat"
_ADAPTERS = {
    "fake": "serve.adapters.fake:FakeSeat",
    "process": "serve.adapters.process:ProcessSeat",
    "docker": "serve.adapters.docker:DockerSeat",
    "attach": "serve.adapters.attach:AttachSeat",
    "desk": _GPU_DESK,
    "none": _PROCESSOR_DESK,
}
"""By name, loaded when used: an adapter may need an engine that is not installed. A survey has only the desk."""


def seat_names() -> tuple[str, ...]:
    """Every manifest of this checkout."""
    return tuple(sorted(path.stem for path in (source_root() / SEATS).glob("*.yaml")))


def load_manifest(name: str) -> SeatManifest:
    """The manifest ``serve/seats/<name>.yaml``; with ``like: NAME`` the fields that it lacks are that one's.

    Raises InputError.
    """
    document = _document(name)
    manifest: SeatManifest = document.validate(SeatManifest, value=_value(name, ()))
    if manifest.name != name:
        raise InputError("a seat's name is its file's", where=document.file, expected=name, found=manifest.name)
    return manifest


def _value(name: str, above: tuple[str, ...]) -> Any:
    """A manifest's data over that of the one it is like."""
    value = _document(name).value
    if not isinstance(value, dict) or LIKE not in value:
        return value
    if name in above:
        raise InputError("seats that are like each other", where=", ".join(above), expected="one that stands by itself")
    base = _value(str(value.pop(LIKE)), (*above, name))
    return {**base, **value} if isinstance(base, dict) else value


def _document(name: str) -> Document:
    path = source_root() / SEATS / f"{name}.yaml"
    if not path.is_file():
        raise InputError("no such seat", where=str(path), expected=", ".join(seat_names()), found=name)
    return read(path)


def pack_of(manifest: SeatManifest) -> Path:
    """Folder of the standing pack: the checkout's, or one made from a seed into the cache where it is not there yet."""
    if manifest.generated is None:
        return source_root() / manifest.pack
    return expert_pack.ensure(**manifest.generated.model_dump())


def sandbox_of(manifest: SeatManifest, planned: PlannedBoot) -> Sandbox:
    """What a boot of this seat runs in on this machine, also one that never came up."""
    if manifest.adapter == "docker" and planned.role != "desk":
        return IN_A_CONTAINER
    return available() if manifest.adapter == "process" or planned.role == "desk" else NO_SANDBOX


def has_adapter(name: str) -> bool:
    """Whether this checkout can start engines in that way."""
    return name in _ADAPTERS


def absent_here(manifest: SeatManifest) -> tuple[str, ...]:
    """What this machine lacks for the seat, one line each; nothing is looked for where the adapter finds out itself."""
    if manifest.adapter not in _HOST_CHECKS:
        return ()
    found: tuple[str, ...] = pkgutil.resolve_name(_HOST_CHECKS[manifest.adapter])(manifest)
    return found


def seat_of(manifest: SeatManifest, planned: PlannedBoot) -> Seat:
    """The adapter for one planned boot; a desk boot has no engine. Raises SeatError for one not written yet."""
    name = manifest.adapter
    if planned.role == "desk":  # an engine's seat has a desk beside it, where its kernels run
        return _of(_GPU_DESK if manifest.gpu and planned.libraries else _PROCESSOR_DESK)
    if not has_adapter(name):
        raise SeatError("no adapter for this seat yet", where=manifest.name, expected=", ".join(_ADAPTERS), found=name)
    return _of(_ADAPTERS[name])


def _of(place: str) -> Seat:
    seat: Seat = pkgutil.resolve_name(place)()
    return seat
