"""Device files that may be opened for writing, since nothing of the machine changes by it: each by what it is."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from runner.craft.others import Others
from serve.adapters.watchdog import descendants

_ANYBODYS = {
    **{(1, 3): "/dev/null", (1, 5): "/dev/zero", (1, 7): "/dev/full", (1, 8): "/dev/random", (1, 9): "/dev/urandom"},
    **{(5, 0): "/dev/tty", (5, 2): "/dev/ptmx"},
}
"""By the kernel's own numbers (``Documentation/admin-guide/devices.txt``)."""
_MASTERS = ("/dev/ptmx", "/dev/pts/ptmx")
_ACCELERATORS = re.compile(
    r"/dev/(nvidia([0-9]+|ctl|-uvm|-uvm-tools|-modeset)|nvidia-caps/nvidia-cap[0-9]+|dri/(card|renderD)[0-9]+|kfd)"
)
"""Their numbers are given out at each start of the machine."""
_TERMINAL = re.compile(r"/dev/pts/([0-9]+)")


def changes_nothing(place: str, root: str, flags: int | None, others: Others) -> bool:
    """Whether a path, seen below ``root``, is a device that an open with ``flags`` changes nothing of.

    Without flags the file itself is changed (removed, renamed, its mode set), which is for one's own terminal alone.
    """
    if terminal := _TERMINAL.fullmatch(place):
        return is_own_terminal(int(terminal[1]), others)
    named = place in _ANYBODYS.values() or place in _MASTERS or _ACCELERATORS.fullmatch(place) is not None
    if flags is None or not named:
        return False
    try:
        about = Path(f"{root}{place}").lstat()
    except OSError:
        return not flags & os.O_CREAT  # nothing to write to, and nothing is made
    if not stat.S_ISCHR(about.st_mode):
        return False
    number = (os.major(about.st_rdev), os.minor(about.st_rdev))
    return number in _ANYBODYS if _ACCELERATORS.fullmatch(place) is None else number[0] > max(_ANYBODYS)[0]


def is_own_terminal(number: int, others: Others) -> bool:
    """Whether a process of the session holds the other end of a pseudo-terminal."""
    line = f"tty-index:\t{number}"
    for pid in descendants(others.keeper):
        with suppress(OSError):  # it has ended
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    if str(entry.readlink()) in _MASTERS and line in (
                        Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text().splitlines()
                    ):
                        return True
    return False


__all__ = ["changes_nothing", "is_own_terminal"]
