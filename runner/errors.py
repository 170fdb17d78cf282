"""Every error a user can meet.

    CarveError                 what, where, expected, found, next step
    ├── InputError        (3)  an order, plan, manifest or pack that is malformed
    ├── TrustError        (3)  a signature, digest or verdict that does not hold
    ├── SeatError         (2)  the seat could not be started, reached or stopped
    │   └── AbsentError        this machine lacks what the seat needs: nothing was started
    ├── EvidenceError     (2)  evidence is missing or cannot be used
    └── StateError        (2)  a run folder, lock or disk that stands in the way

The number is the process exit code (design: 0 pass, 1 a gate failed, 2 could not decide, 3 malformed or untrusted).
"""

from __future__ import annotations


class CarveError(Exception):
    """Base of all errors that carry a message for a person."""

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", expected: str = "", found: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what, self.where, self.expected, self.found, self.next_step = what, where, expected, found, next_step

    def __str__(self) -> str:
        lines = [self.what]
        for label, text in (
            ("where", self.where),
            ("expected", self.expected),
            ("found", self.found),
            ("next step", self.next_step),
        ):
            if text:
                lines.append(f"  {label}: {text}")
        return "\n".join(lines)


class InputError(CarveError):
    """Something a person or a tool wrote is malformed."""

    exit_code = 3


class TrustError(CarveError):
    """A signature, digest, key or verdict does not hold."""

    exit_code = 3


class SeatError(CarveError):
    """The seat could not be started, reached or stopped."""


class AbsentError(SeatError):
    """This machine lacks what the seat needs, so that nothing was started: it says nothing about a candidate."""


class EvidenceError(CarveError):
    """Evidence is missing, incomplete or cannot be read."""


class StateError(CarveError):
    """A run folder, a lock or the disk stands in the way."""
