"""A session that something ended from outside (Ctrl-C, a kill of the runner, a reboot), and its clone as it was left.

The next dispatch goes on in that very clone, as the same attempt; what was known of the session until then stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runner.model.attempt import Finding
from runner.steps.journal import Journal

JOURNAL = "journal.jsonl"
STARTED, STOPPED, ENDED = "session-started", "session-stopped", "session-ended"
SHOWN = 3
"""Of many interruptions, the last ones are told."""
AGAIN = """
## Your work was interrupted

Something outside ended the session before it was over. The clone stands as it was left then: look at what is there and
go on.
"""


@dataclass(frozen=True)
class Interruption:
    """What is known of the sessions of an attempt that was not finished."""

    kind: Literal["agent", "person"]
    """Who began it."""
    base: str
    start: str
    """Commits as they were when the clone was made."""
    told: tuple[str, ...]
    findings: tuple[Finding, ...]
    """What was wrong with them so far."""


def interruption(folder: Path, clone: Path) -> Interruption | None:
    """The unfinished attempt in a folder; None where there is none, or nothing left of its clone."""
    path = folder / JOURNAL
    if (folder / "attempt.json").exists() or not clone.is_dir() or not path.is_file():
        return None
    told = Journal(path).all()
    begun = [event for event in told if event.kind == STARTED and "start" in event.facts]
    if not begun:
        return None
    stopped = [event for event in told if event.kind == STOPPED]
    lines = []
    for number, one in enumerate(begun):
        following = begun[number + 1].at if number + 1 < len(begun) else ""
        own = [event for event in told if event.at >= one.at and (not following or event.at < following)]
        how = "; what it wrote and opened is not known"
        if any(event.kind == STOPPED for event in own):
            how = ""
        elif any(event.kind == ENDED for event in own):
            how = "; it had ended and was not looked at"
        lines.append(f"session of {one.facts['craftsperson']} from {one.at} to {own[-1].at}: interrupted{how}")
    more = [f"{len(lines) - SHOWN} interrupted sessions before"] if len(lines) > SHOWN else []
    return Interruption(
        kind=begun[-1].facts["by"],
        base=begun[0].facts["base"],
        start=begun[0].facts["start"],
        told=(*more, *lines[-SHOWN:]),
        findings=tuple(Finding.model_validate(one) for event in stopped for one in event.facts["findings"]),
    )


__all__ = ["AGAIN", "ENDED", "JOURNAL", "STARTED", "STOPPED", "Interruption", "interruption"]
