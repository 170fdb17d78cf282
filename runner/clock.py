"""Wall-clock time as the records write it."""

from __future__ import annotations

from datetime import UTC, datetime

from runner.errors import InputError


def now() -> str:
    """UTC in RFC 3339 with microseconds."""
    return _written(datetime.now(UTC))


def given(text: str, where: str) -> str:
    """A time that a person gave, with whatever offset, as the records write it: in UTC.

    Raises InputError naming ``where`` it was given for what is no time, has no zone, or has no place in UTC.
    """
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return _written(moment.astimezone(UTC))
        found = f"{text}, without a zone"
    except (ValueError, OverflowError):
        found = text
    raise InputError(
        "not a time that means the same everywhere",
        where=where,
        expected="a date and a time with its zone, such as 2027-01-31T00:00:00Z or 2027-01-31T09:00:00+09:00",
        found=found,
    )


def _written(moment: datetime) -> str:
    return f"{moment.year:04d}" + moment.strftime("-%m-%dT%H:%M:%S.%fZ")
