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
    return bool(claiming(gate for gate, status in verdicts if status is Status.PASS))


def claiming(gates: Iterable[str]) -> tuple[str, ...]:
    """Those of ``gates`` whose PASS says something about speed or quality."""
    return tuple(gate for gate in gates if gate in _CLAIMS)


def possible(gates: Iterable[str], *, on_a_card: bool) -> tuple[str, ...]:
    """The most that :func:`witnesses` can find where all of ``gates`` pass; ``on_a_card``: a GPU may be at the desk."""
    names = set(gates)
    found = {"payload", *(_BY_GATE[gate] for gate in names if gate in _BY_GATE)}
    if on_a_card and "parity" in names:
        found |= set(_ON_A_CARD)
    return tuple(sorted(found))


def bringing(found: Iterable[str]) -> tuple[str, ...]:
    """Gates that would bring a witness that is not among ``found``."""
    have = set(found)
    return tuple(gate for gate, witness in _BY_GATE.items() if witness not in have)


__all__ = ["NEEDED", "bringing", "claiming", "claims", "possible", "witnesses"]
