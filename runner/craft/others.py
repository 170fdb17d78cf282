"""Which processes are a session's own: whatever stands below its keeper, however it got there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from runner.craft.call_table import ProcessCall

EVERYBODY = "every process"
STRANGER = "a process by its number in another name space"
"""Nothing under the filter gets into one; there its numbers would say nothing about whom they mean."""
_ALL = -1
_GROUP, _USER = 1, 2
"""Kinds of numbers, counted from a process."""


class Others:
    """Everything on this machine but what stands below the process ``keeper``, which adopts its orphans."""

    def __init__(self, keeper: int) -> None:
        self.keeper = keeper

    def reached(self, caller: int, call: ProcessCall, arguments: Sequence[int]) -> str:
        """Which process that is not its own a call is about; empty for none.

        Raises OSError where the caller has ended, PermissionError where nobody may look into it.
        """
        if call.signal is not None and not arguments[call.signal] & 0xFFFFFFFF:
            return ""
        if _space(caller) != _space(self.keeper):
            return STRANGER
        for number in self._meant(caller, call, arguments):
            if number == _ALL:
                return EVERYBODY if self.keeper != 1 else ""  # which spares the first process of a sandbox
            if not self.own(number):
                return f"process {number}{_called(number)}"
        return ""

    def own(self, number: int) -> bool:
        """Whether it stands below the keeper; so does what has ended."""
        if number == self.keeper:
            return False
        while number > 1 and number != self.keeper:
            try:
                number = int(_stat(number)[1])
            except (OSError, ValueError):
                return True
        return number == self.keeper

    def _meant(self, caller: int, call: ProcessCall, arguments: Sequence[int]) -> Iterator[int]:
        number = _signed(arguments[call.process])
        if call.second is not None:
            yield _signed(arguments[call.second])
        if call.is_descriptor:
            number = _described(caller, number)
        if call.kind is not None:
            yield from self._of_kind(caller, _signed(arguments[call.kind]) - call.first_kind, number)
        elif number > 0 or (number == _ALL and call.group):
            yield number
        elif number < _ALL and call.group:
            yield from _members(-number)

    def _of_kind(self, caller: int, kind: int, number: int) -> Iterator[int]:
        """A process, a group or all of a user; 0 is the caller, its group or its user."""
        if kind == _GROUP:
            yield from _members(number or int(_stat(caller)[2]))
        elif kind == _USER:
            yield _ALL
        elif number > 0:
            yield number


def _described(caller: int, descriptor: int) -> int:
    """The process that a descriptor is of, be it a folder of ``/proc``; 0 for none, and for one that has ended."""
    about = Path(f"/proc/{caller}/fdinfo/{descriptor}").read_text().splitlines()
    place = Path(f"/proc/{caller}/fd/{descriptor}").readlink().parts
    if len(place) > 2 and place[1] == "proc" and place[2].isdigit():
        return int(place[2])
    return max(next((int(line.split()[1]) for line in about if line.startswith("Pid:")), 0), 0)


def _members(group: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError):
                if int(_stat(int(entry.name))[2]) == group:
                    yield int(entry.name)


def _stat(number: int) -> list[str]:
    """State, parent and group of a process, as words. Raises OSError where it has ended."""
    return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[:3]


def _space(number: int) -> str:
    """In which name space a process has its number. Raises OSError where it has ended or may not be looked into."""
    return str(Path(f"/proc/{number}/ns/pid").readlink())


def _called(number: int) -> str:
    with suppress(OSError):
        return f" ({Path(f'/proc/{number}/comm').read_text().strip()})"
    return ""


def _signed(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


__all__ = ["EVERYBODY", "STRANGER", "Others"]
