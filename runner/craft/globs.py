"""Which files an order means by a glob."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from string import printable


def permitted(path: str, patterns: Sequence[str]) -> bool:
    """Whether one of the globs takes the path; a star stays inside its folder."""
    parts = path.split("/")
    return any(
        len(parts) == len(wanted := pattern.split("/")) and all(map(fnmatchcase, parts, wanted)) for pattern in patterns
    )


def meet(one: str, other: str) -> bool:
    """Whether some path is taken by both globs, be there such a file yet or not."""
    parts, others = one.split("/"), other.split("/")
    return len(parts) == len(others) and all(map(_parts_meet, parts, others))


def _parts_meet(one: str, other: str) -> bool:
    """The same for one part of a path: which ends of both can follow beginnings that some text has in common."""
    ones, others = _letters(one), _letters(other)
    reached = [[False] * (len(others) + 1) for _ in range(len(ones) + 1)]
    reached[0][0] = True
    for place in range(len(ones) + 1):
        for beside in range(len(others) + 1):
            if not reached[place][beside]:
                continue
            mine = ones[place] if place < len(ones) else ""
            theirs = others[beside] if beside < len(others) else ""
            if mine and "*" in (mine, theirs):  # a star ends, or takes what the other one asks for
                reached[place + 1][beside] = True
            if theirs and "*" in (mine, theirs):
                reached[place][beside + 1] = True
            if mine and theirs and "*" not in (mine, theirs) and _share(mine, theirs):
                reached[place + 1][beside + 1] = True
    return reached[-1][-1]


def _letters(part: str) -> list[str]:
    """A glob as globs of one character each, and stars."""
    return re.findall(r"\[(?:!.|[^!])[^\]]*\]|.", part, re.DOTALL)


def _share(one: str, other: str) -> bool:
    """Whether two globs of one character have one in common."""
    if len(one) == len(other) == 1 and "?" not in (one, other):
        return one == other
    return any(fnmatchcase(letter, one) and fnmatchcase(letter, other) for letter in {*printable, *one, *other})


__all__ = ["meet", "permitted"]
