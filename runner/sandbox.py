"""Native code of a candidate runs where it can reach nothing that decides about it.

With bubblewrap a command sees a file system of its own: the operating system, this Python, the code that serves, and
what it is given by name, all read-only, and its own private folders. Not there are keys, seed and run folders, the
canon, reports, orders, gates, text pools and every other file of the user, also where they lie below a folder of the
operating system or of this Python; other processes; the machine's network and shared memory. No capability is left,
and none can be had again (a root user keeps all of them otherwise).

Where bubblewrap is missing or forbidden the command runs as it is, and the report says so.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from runner.errors import InputError
from runner.model.boot import Sandbox
from runner.paths import KEYS, RUNS, cache_home, config_home, source_root, state_home, workspace

TEMPORARY = "{temporary}"
"""Stands in a confined command for the private temporary folder, which is only made when the command starts."""

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/sys")
_SETTINGS = (
    *("/etc/alternatives", "/etc/group", "/etc/hosts", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/etc/localtime", "/etc/nsswitch.conf", "/etc/os-release", "/etc/passwd"),
)
SERVED_CODE = ("runner", "serve", "recipe", "kernels")
"""Folders of a checkout that a served process imports from; nothing else of it is shown, nor mounted in a container."""
HIDDEN_CODE = ("runner/gates", "recipe/mini/text")
"""Parts of these that no served process imports."""
_JUDGING = ("canon", "reports", "orders", "tests", ".git")
"""Folders of a checkout and of a workspace that nobody who is judged may read, were the whole of it shown."""
_PROCESSES = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
_LOCKED = ("--disable-userns", "--cap-drop", "ALL", "--new-session", "--die-with-parent")


@dataclass(frozen=True)
class Reach:
    """What a confined command may reach besides the operating system and the code that serves."""

    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()
    temporary: bool = True
    """Its private temporary folder, named by :data:`TEMPORARY`."""
    network: bool = False
    """The machine's network; otherwise a loopback of its own."""
    devices: tuple[Path, ...] = ()


def devices() -> tuple[Path, ...]:
    """The machine's accelerators, as far as it has any."""
    return tuple(sorted(Path("/dev").glob("nvidia*")))


def confined(command: Sequence[str], reach: Reach, folder: Path) -> list[str]:
    """``command`` inside bubblewrap, started in ``folder``, which it has to be able to reach."""
    return [_tool(), *_options(reach), "--chdir", str(folder), "--", *command]


@cache
def available() -> Sandbox:
    """What can be had on this machine, found out by trying it."""
    if shutil.which("bwrap") is None:
        return Sandbox(tool="none", network="host", reason="bubblewrap is not installed")
    version = subprocess.run([_tool(), "--version"], capture_output=True, text=True, check=False).stdout.split()[-1:]
    own, words = _works(Reach(temporary=False))
    if own:
        return Sandbox(tool="bubblewrap", version="".join(version), network="own")
    shared, _ = _works(Reach(temporary=False, network=True))
    if shared:
        return Sandbox(tool="bubblewrap", version="".join(version), network="host", reason=words)
    return Sandbox(tool="none", network="host", reason=f"bubblewrap does not work here: {words}")


def _works(reach: Reach) -> tuple[bool, str]:
    tried = subprocess.run(
        [_tool(), *_options(reach), "--", sys.executable, "-I", "-c", "import ctypes"],
        capture_output=True,
        text=True,
        check=False,
    )
    return tried.returncode == 0, tried.stderr.strip()[-200:]


def _tool() -> str:
    return shutil.which("bwrap") or "bwrap"


def _options(reach: Reach) -> list[str]:
    system = [Path(path) for path in _SYSTEM]
    visible = [*python_folders(), *(source_root() / name for name in SERVED_CODE), *reach.reads]
    shown = [
        Mount("--ro-bind-try", path, path) for path in (*system, *map(Path, _SETTINGS)) if path not in _links(system)
    ]
    shown += [Mount("--ro-bind", path, path) for path in visible]
    written = [*map(str, reach.writes), *((TEMPORARY,) if reach.temporary else ())]
    return [
        *_PROCESSES,
        *(() if reach.network else ("--unshare-net",)),
        *_LOCKED,
        *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/dev/shm", "--tmpfs", "/tmp"),
        *(word for path, target in _links(system).items() for word in ("--symlink", str(target), str(path))),
        *layered(shown, [*private(), *(source_root() / name for name in HIDDEN_CODE)]),
        *_mounts("--dev-bind", reach.devices),
        *_mounts("--bind", written),
    ]


def _mounts(option: str, paths: Iterable[Path | str]) -> list[str]:
    return [word for path in paths for word in (option, str(path), str(path))]


def _links(paths: Iterable[Path]) -> dict[Path, Path]:
    """Those of ``paths`` that are links, with where they lead."""
    return {path: path.readlink() for path in paths if path.is_symlink()}


class Mount(NamedTuple):
    """A file or folder of this machine, and where it is seen inside."""

    option: str
    source: Path
    inside: Path


def layered(mounts: Iterable[Mount], hidden: Iterable[Path]) -> list[str]:
    """Options that show ``mounts``, but nothing in a folder of ``hidden``, whatever links and names lead there.

    What is named deeper decides: a library in the hidden cache is seen where it is shown by name.
    """
    words: list[str] = []
    shown = sorted(mounts, key=lambda mount: len(mount.inside.parts))
    folders = {path.resolve() for path in hidden if path.is_dir()}
    for option, source, inside in shown:
        words += [option, str(source), str(inside)]
        deeper = [mount.inside for mount in shown if inside in mount.inside.parents]
        for place in _places(folders, source.resolve(), inside):
            if not any(place.is_relative_to(other) for other in deeper):  # that one hides it, or is to show it
                words += ["--tmpfs", str(place)]
    return words


def _places(folders: Iterable[Path], real: Path, inside: Path) -> Iterator[Path]:
    """Where those of ``folders`` are seen that lie in ``real``, without what lies in another of them."""
    within = {folder for folder in folders if real in folder.parents}
    for folder in sorted(within):
        if within.isdisjoint(folder.parents):
            yield inside / folder.relative_to(real)


def private() -> tuple[Path, ...]:
    """Folders of this user and this checkout that nobody who is judged may see, wherever they lie."""
    roots, people = [source_root()], list[Path]()
    with suppress(InputError):
        roots.append(workspace())
    with suppress(RuntimeError):  # a user without a home
        people.append(Path.home() / ".ssh")
    return (
        *(config_home(), config_home() / KEYS, *people),
        *(state_home(), state_home() / RUNS, cache_home()),
        *roots,
        *(root / name for root in roots for name in _JUDGING),
    )


def python_folders() -> Iterator[Path]:
    """This interpreter and where it imports packages from; never a folder it was merely started in."""
    own = (Path(sys.base_prefix), Path(sys.prefix))
    yield from dict.fromkeys((*own, *(path.resolve() for path in own)))  # links to it are followed by their old names
    for entry in sys.path:
        path = Path(entry)
        if path.is_dir() and re.fullmatch("(site|dist)-packages", path.name) and not path.is_relative_to(sys.prefix):
            yield path


__all__ = [
    "HIDDEN_CODE",
    "SERVED_CODE",
    "TEMPORARY",
    "Mount",
    "Reach",
    "available",
    "confined",
    "devices",
    "layered",
    "private",
    "python_folders",
]
