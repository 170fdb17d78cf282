"""Which witnesses from outside the engine's process stood in a run.

A native candidate inside that process can forge whatever the process says, so a speed or quality PASS rests on at least
two of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runner.model.boot import NO_WEIGHTS, BootRecord
from runner.model.verdict import Status
from runner.plan_layout import DESK

NEEDED = 2

_BY_GATE = {
    "speed": "client-clock",
    "perturbation": "perturbation",
    "watermark": "perturbation",
    "knock-out": "knock-out",
}
"""Which witness stood when a gate passed."""

_ON_A_CARD = ("perturbation", "profiler")
"""What parity on a GPU desk holds besides: the build that is wrong on purpose was seen, and the names of what ran."""

_CLAIMS = frozenset({"speed", "kernel-speed", "kld", "ppl-prefill", "ppl-decode", "score", "needle", "acceptance"})
"""Gates whose PASS says that something is as fast or as good."""


def witnesses(verdicts: Iterable[tuple[str, Status]], boots: Sequence[BootRecord]) -> tuple[str, ...]:
    """Sorted names; ``verdicts`` are gate names with their status.

    ``payload`` stands where every engine that ended in order said what weights each of its ranks had loaded.
    """
    passed = {gate for gate, status in verdicts if status is Status.PASS}
    stood = {_BY_GATE[gate] for gate in passed if gate in _BY_GATE}
    finished = [boot for boot in boots if boot.ended == "stopped" and boot.engine]
    if finished and all(boot.ranks and all(rank.weights != NO_WEIGHTS for rank in boot.ranks) for boot in finished):
        stood.add("payload")
    if "parity" in passed and any(boot.planned == DESK and boot.label == "real" for boot in finished):
        stood |= set(_ON_A_CARD)
    return tuple(sorted(stood))


def claims(verdicts: Iterable[tuple[str, Status]]) -> bool:
    """Whether any PASS says something about speed or quality."""
    return any(gate in _CLAIMS and status is Status.PASS for gate, status in verdicts)


__all__ = ["NEEDED", "claims", "witnesses"]
