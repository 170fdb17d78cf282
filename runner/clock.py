"""Wall-clock time as the records write it."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> str:
    """UTC in RFC 3339 with microseconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
