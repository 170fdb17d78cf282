"""Native code of a candidate runs where it can reach nothing that decides about it.

With bubblewrap a command sees a file system of its own: the operating system, this Python, the code that serves, and
what it is given by name, all read-only, and its own private folders. Not there are keys, seed and run folders, the
canon, reports, orders, gates, text pools and every other file of the user; other processes; the machine's network and
shared memory. No capability is left, and none can be had again (a root user keeps all of them otherwise).

Where bubblewrap is missing or forbidden the command runs as it is, and the report says so.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from runner.model.boot import Sandbox
from runner.paths import cache_home, config_home, source_root, state_home

TEMPORARY = "{temporary}"
"""Stands in a confined command for the private temporary folder, which is only made when the command starts."""

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/sys")
_SETTINGS = (
    *("/etc/alternatives", "/etc/group", "/etc/hosts", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/etc/localtime", "/etc/nsswitch.conf", "/etc/os-release", "/etc/passwd"),
)
_CODE = ("runner", "serve", "recipe", "kernels")
HIDDEN_CODE = ("runner/gates", "recipe/mini/text")
"""Parts of the code's folders that no served process imports."""
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
    visible = [*python_folders(), *(source_root() / name for name in _CODE), *reach.reads]
    hidden = [*_hidden(visible)]
    named = [path for path in reach.reads if any(path.is_relative_to(folder) for folder in hidden)]
    written = [*map(str, reach.writes), *((TEMPORARY,) if reach.temporary else ())]
    return [
        *_PROCESSES,
        *(() if reach.network else ("--unshare-net",)),
        *_LOCKED,
        *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/dev/shm", "--tmpfs", "/tmp"),
        *(word for path in _SYSTEM for word in _system(Path(path))),
        *_mounts("--ro-bind-try", _SETTINGS),
        *_mounts("--ro-bind", visible),
        *(word for path in hidden for word in ("--tmpfs", str(path))),
        *_mounts("--ro-bind", named),  # what lies in something hidden is seen all the same, as a library in the cache
        *_mounts("--dev-bind", reach.devices),
        *_mounts("--bind", written),
    ]


def _mounts(option: str, paths: Iterable[Path | str]) -> list[str]:
    return [word for path in paths for word in (option, str(path), str(path))]


def _system(path: Path) -> list[str]:
    if path.is_symlink():
        return ["--symlink", str(path.readlink()), str(path)]
    return ["--ro-bind-try", str(path), str(path)]


def python_folders() -> Iterator[Path]:
    """This interpreter and where it imports packages from; never a folder it was merely started in."""
    own = (Path(sys.base_prefix), Path(sys.prefix))
    yield from dict.fromkeys((*own, *(path.resolve() for path in own)))  # links to it are followed by their old names
    for entry in sys.path:
        path = Path(entry)
        if path.is_dir() and re.fullmatch("(site|dist)-packages", path.name) and not path.is_relative_to(sys.prefix):
            yield path


def _hidden(visible: Iterable[Path]) -> Iterator[Path]:
    """Folders inside what is visible that must not be."""
    for path in (config_home(), state_home(), cache_home(), *(source_root() / name for name in HIDDEN_CODE)):
        if path.is_dir() and any(path.is_relative_to(root) for root in visible):
            yield path


__all__ = ["HIDDEN_CODE", "TEMPORARY", "Reach", "available", "confined", "devices", "python_folders"]
