"""``journal.jsonl``: what happened, one line each, on disk before the next thing happens."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.clock import now
from runner.digest import canonical_json
from runner.errors import StateError
from runner.files import append_line, write_whole

TAKEN_IN = "bundle-taken-in"
"""The event after which a run measured elsewhere is judged here: what its bundle lacks is not measured any more."""


@dataclass(frozen=True)
class Event:
    """One line."""

    kind: str
    at: str
    facts: dict[str, Any]


def events(path: Path) -> list[Event]:
    """What another process has written so far; a line that is being written is left out and nothing is changed."""
    data = path.read_bytes() if path.is_file() else b""
    return [_event(path, number, line) for number, line in enumerate(data.rpartition(b"\n")[0].splitlines(), 1)]


def _event(path: Path, number: int, line: bytes) -> Event:
    try:
        value = json.loads(line)
        return Event(value.pop("event"), value.pop("at"), value)
    except (ValueError, KeyError, AttributeError):
        raise StateError(
            "the journal cannot be read",
            where=f"{path}:{number}",
            expected="one JSON object with event and at",
            found=line[:80].decode(errors="replace"),
            next_step="start a new run; this one cannot be trusted any more",
        ) from None


class Journal:
    """Append-only; a last line cut short by a crash is dropped when the journal is opened again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._events = self._read() if path.exists() else []

    def _read(self) -> list[Event]:
        whole, _, torn = self.path.read_bytes().rpartition(b"\n")
        if torn:
            write_whole(self.path, whole + b"\n" if whole else b"")
        return events(self.path)

    def write(self, kind: str, **facts: Any) -> None:
        """Append and fsync one event."""
        event = Event(kind, now(), facts)
        append_line(self.path, canonical_json({"event": kind, "at": event.at, **facts}))
        self._events.append(event)

    def all(self) -> tuple[Event, ...]:
        """Every event, oldest first."""
        return tuple(self._events)

    def of(self, kind: str, **facts: Any) -> list[Event]:
        """Events of one kind with these facts, oldest first."""
        return [
            event
            for event in self._events
            if event.kind == kind and all(event.facts.get(name) == value for name, value in facts.items())
        ]
