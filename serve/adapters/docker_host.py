"""What a docker seat needs of this machine before anything starts: docker, image, devices, and every mount as it is."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from recipe.pack import read_pack
from runner.digest import sha256_file, sha256_tree
from runner.errors import CarveError, SeatError
from runner.model.scalars import UNKNOWN
from runner.model.seat import Container, Mount, SeatManifest
from runner.paths import cache_home, source_root
from serve.adapters.docker_client import Docker
from serve.adapters.docker_launch import PACK, Places


def places_of(manifest: SeatManifest, pack: Path | None = None) -> Places:
    """Where the mounts of a seat lie on this machine; ``pack`` where another than the standing one is served."""
    return Places(
        pack=str((pack or source_root() / manifest.pack).resolve()),
        code=str(source_root()),
        cache=str(cache_home() / manifest.name),
    )


def absent(manifest: SeatManifest) -> tuple[str, ...]:
    """Everything that this machine lacks for the seat, one line each; empty where a boot can start."""
    container = manifest.container
    assert container is not None, "a docker seat describes its container"
    return (
        *_docker_faults(container),
        *mount_faults(container, places_of(manifest)),
        *device_faults(manifest.machine.devices if manifest.machine else ()),
    )


def _docker_faults(container: Container) -> Iterator[str]:
    try:
        docker = Docker.find()
        docker.version()
        if container.digest != UNKNOWN:
            image_environment(docker, container)
    except SeatError as error:
        yield f"{error.what}: {error.found}" if error.found != "none" else error.what


def image_environment(docker: Docker, container: Container) -> list[str]:
    """What the image itself sets. Raises SeatError where the image of this digest is not here."""
    image = docker.image(container.digest)
    if image is None or image["Id"] != f"sha256:{container.digest}":
        raise SeatError(
            "the seat's image is not here",
            where=container.image,
            expected=f"sha256:{container.digest}",
            found=image["Id"] if image else "no such image",
            next_step="load the image of this digest; none is pulled by a tag",
        )
    environment: list[str] = image["Config"]["Env"] or []
    return environment


def mount_faults(container: Container, places: Places) -> Iterator[str]:
    """Mounts that are absent here, or whose bytes are not those of the manifest; an unknown digest is no fault here."""
    for mount in container.mounts:
        path = Path(places.of(mount))
        if mount.writable:
            continue  # a cache: made where it is not there
        if not path.exists():
            yield f"mount {mount.inside}: {path} is not on this machine"
        elif path.is_dir() and not any(path.iterdir()):
            yield f"mount {mount.inside}: {path} is an empty folder; docker makes one where a file to mount is missing"
        elif mount.digest not in (None, UNKNOWN):
            yield from _stale(mount, path)


def _stale(mount: Mount, path: Path) -> Iterator[str]:
    try:
        digest = digest_of(mount, path)
    except CarveError as error:
        yield f"mount {mount.inside}: {error.what}: {error.where}"
        return
    if digest != mount.digest:
        yield f"mount {mount.inside}: {path} has SHA-256 {digest}, the manifest says {mount.digest}"


def digest_of(mount: Mount, path: Path) -> str:
    """SHA-256 of a file, of a folder's files by name, or of a pack's headers. Raises InputError."""
    if mount.host == PACK:
        return read_pack(path).header_digest()
    if path.is_file():
        return sha256_file(path)
    return sha256_tree(path, [file for file in path.rglob("*") if file.is_file()])


def device_faults(devices: tuple[int, ...]) -> Iterator[str]:
    """Devices that the driver does not list."""
    if not devices:
        return
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout.split()
    except (OSError, subprocess.SubprocessError):
        yield f"devices {', '.join(map(str, devices))}: no NVIDIA driver answers on this machine"
        return
    for device in devices:
        if str(device) not in listed:
            yield f"device {device} is not on this machine"


def require_mounts(manifest: SeatManifest, places: Places) -> None:
    """Raises SeatError naming every mount that is not what the manifest says."""
    assert manifest.container is not None, "a docker seat describes its container"
    if faults := tuple(mount_faults(manifest.container, places)):
        raise SeatError("what is mounted is not what the manifest says", where=manifest.name, found="; ".join(faults))


__all__ = ["absent", "device_faults", "digest_of", "image_environment", "mount_faults", "places_of", "require_mounts"]
