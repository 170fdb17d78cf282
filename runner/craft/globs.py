"""Which files an order means by a glob."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase


def permitted(path: str, patterns: Sequence[str]) -> bool:
    """Whether one of the globs takes the path; a star stays inside its folder."""
    parts = path.split("/")
    return any(
        len(parts) == len(wanted := pattern.split("/")) and all(map(fnmatchcase, parts, wanted)) for pattern in patterns
    )


__all__ = ["permitted"]
