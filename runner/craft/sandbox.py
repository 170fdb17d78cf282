"""What a craftsperson can see and change, as a bubblewrap command line.

Inside, the clone stands where the checkout stands outside: an absolute path into the checkout reaches the clone, and
what is imported by an installed name comes from it. Nothing is shown that is not listed, so keys, canon, reports, other
clones and sealed seeds are not there, also where they lie below a folder of the system. Capabilities are dropped: as
root, the walls could be taken down with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.paths import source_root
from runner.sandbox import Mount, available, layered, private, python_folders

HOME = Path("/craft")
TEMPORARY = Path("/tmp")
KEEPER = Path("/run/carve")
"""Where the keeper's own code is seen, read-only."""
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/etc", "/run/systemd/resolve")
SECRETS = ("/etc/shadow", "/etc/gshadow", "/etc/ssh")
SHARED_MEMORY_BYTES = 256 << 20


@dataclass(frozen=True)
class Walls:
    """Folders of one session."""

    checkout: Path
    """Where the clone is seen."""
    clone: Path
    home: Path
    temporary: Path
    network: bool
    devices: tuple[Path, ...] = ()
    """Accelerators that the order lets the craftsperson use."""
    readable: tuple[Path, ...] = ()
    trap: Path | None = None
    """A folder with a seed that nobody seals with, shown where a snooper would look."""


def version() -> str:
    """``bubblewrap`` and its version, or empty where no session can have a sandbox with a network of its own."""
    found = available()
    return f"{found.tool} {found.version}" if found.network == "own" else ""


def command(argv: Sequence[str], walls: Walls) -> list[str]:
    """``argv`` as the first process of a sandbox; it starts in the clone. Later mounts lie over earlier ones."""
    hidden = private()
    given = [
        *_read_only(python_folders()),
        *_read_only(walls.readable),
        *_read_only([walls.trap] if walls.trap else []),
    ]
    return [
        *("bwrap", "--unshare-all", *(["--share-net"] if walls.network else [])),
        *("--unshare-user", "--disable-userns", "--cap-drop", "ALL"),
        *("--die-with-parent", "--new-session", "--as-pid-1"),
        *layered(_read_only(map(Path, SYSTEM)), hidden),
        *_nothing(map(Path, SECRETS)),
        *("--dev", "/dev", "--proc", "/proc", "--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm"),
        *(word for path in walls.devices for word in ("--dev-bind", str(path), str(path))),
        *("--bind", str(walls.temporary), str(TEMPORARY), "--bind", str(walls.home), str(HOME)),
        *layered([*given, Mount("--bind", walls.clone, walls.checkout)], hidden),
        *("--ro-bind", str(source_root() / "runner"), str(KEEPER / "runner")),
        *("--ro-bind", str(source_root() / "serve"), str(KEEPER / "serve")),
        *("--chdir", str(walls.checkout), "--", *argv),
    ]


def _read_only(folders: Iterable[Path]) -> list[Mount]:
    return [Mount("--ro-bind", folder, folder) for folder in folders if folder.exists()]


def _nothing(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        if path.is_dir():
            yield from ("--tmpfs", str(path))
        elif path.exists():
            yield from ("--ro-bind", "/dev/null", str(path))


__all__ = ["HOME", "KEEPER", "TEMPORARY", "Walls", "command", "version"]
