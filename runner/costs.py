"""Where a run's seat time went: each gate's windows, and what the boots needed beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from runner.model.boot import BootRecord
from runner.model.plan import Plan
from runner.model.run import Cost

NANOSECONDS = 10**9


def owners(plan: Plan) -> dict[str, str]:
    """Window to the gate that pays for it: of those that read it the one that reads least."""
    paying: dict[str, str] = {}
    for gate in sorted(plan.gates, key=lambda gate: (len(gate.windows), gate.name), reverse=True):
        paying |= dict.fromkeys(gate.windows, gate.name)
    return paying


def costs(plan: Plan, boots: Sequence[BootRecord], windows: Iterable[tuple[str, str, int]]) -> tuple[Cost, ...]:
    """Seconds by gate and by planned boot; together exactly those of ``boots``.

    ``windows`` are (window, boot id, nanoseconds) of every measured window, those measured again included.
    """
    paying, left = owners(plan), {boot.id: boot.seconds for boot in boots}
    spent: Counter[tuple[str, str]] = Counter()
    for window, boot, nanoseconds in windows:
        if boot in left and window in paying:
            spent[boot, paying[window]] += nanoseconds
    by_gate: Counter[str] = Counter()
    for (boot, gate), nanoseconds in sorted(spent.items()):
        seconds = min(nanoseconds // NANOSECONDS, left[boot])
        left[boot] -= seconds
        by_gate[gate] += seconds
    by_boot: Counter[str] = Counter()
    for each in boots:
        by_boot[each.planned] += left[each.id]
    return (
        *(Cost(what=f"gate {gate.name}", seconds=by_gate[gate.name]) for gate in plan.gates),
        *(Cost(what=f"boot {planned}", seconds=by_boot[planned]) for planned in sorted(by_boot)),
    )


__all__ = ["costs", "owners"]
