"""Whether the machine was disturbed while a window was open: limits on its state, never on the measured rate."""

from __future__ import annotations

from runner.model.evidence import Evidence

_SECOND_NS = 1_000_000_000


def disturbed(evidence: Evidence) -> tuple[str, ...]:
    """Each sealed limit that was exceeded, with figures; also a window that nobody watched.

    Fractions are of wall time times processors between the first and last reading. The limits are the seat manifest's,
    whose digest the plan seals; evidence without limits (offline instruments) is never disturbed.
    """
    limits = evidence.facts.get("limits")
    if not isinstance(limits, dict):
        return ()
    if len(evidence.machine) < 2:
        return ("the machine's state was not read",)
    first, last = evidence.machine[0], evidence.machine[-1]
    capacity = _capacity(evidence, last.at_ns - first.at_ns)
    if capacity <= 0:
        return ("the machine's state cannot be scaled",)
    busy, own = last.busy_ticks - first.busy_ticks, last.own_ticks - first.own_ticks
    fractions = {
        "steal_fraction": (last.steal_ticks - first.steal_ticks) / capacity,
        "foreign_fraction": max(busy - own, 0) / capacity,
    }
    return tuple(
        f"{name.replace('_', ' ')} {fraction:.3f} over its limit {limits[name]}"
        for name, fraction in fractions.items()
        if fraction > float(str(limits[name]))
    )


def _capacity(evidence: Evidence, wall_ns: int) -> float:
    """Ticks that all processors had between the readings."""
    processors, ticks = evidence.facts.get("processors"), evidence.facts.get("ticks_per_second")
    if not isinstance(processors, int) or not isinstance(ticks, int):
        return 0.0
    return wall_ns / _SECOND_NS * processors * ticks
