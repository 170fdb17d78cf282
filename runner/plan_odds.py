"""How often each gate of a plan would be wrong, at the noise that the seat's manifest states."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from runner.model.order import GateOrder, RunnableOrder
from runner.model.plan import Plan, PlannedGate
from runner.model.seat import SeatManifest
from runner.plan import primary_of
from runner.stats import chances, sigma_of_half_width


@dataclass(frozen=True)
class Odds:
    """One gate's chances, as probabilities."""

    gate: str
    false_fail: float
    """A good candidate (the order's expected gain, no harm) does not PASS."""
    false_pass: float
    """A candidate without merit (no gain at all, or harm at the margin) PASSes."""
    power: float
    """A good candidate PASSes."""
    basis: str


def odds(plan: Plan, order: RunnableOrder, manifest: SeatManifest) -> tuple[Odds, ...]:
    """Every gate of the plan, in order."""
    return tuple(_odds(gate, order, manifest) for gate in plan.gates)


def _odds(gate: PlannedGate, order: RunnableOrder, manifest: SeatManifest) -> Odds:
    primary = primary_of(order)
    if gate.name != "speed" or primary is None:
        return Odds(gate.name, 0.0, 0.0, 1.0, "exact on a deterministic seat: the same bytes give the same verdict")
    sigma = sigma_of_half_width(float(manifest.noise.a_a_half_width), primary.pairs)
    margin = float(primary.margin)
    if isinstance(order, GateOrder):
        equal = chances(primary.pairs, margin, 0.0, sigma)
        moved = chances(primary.pairs, margin, margin, sigma)
        return Odds(gate.name, 1 - equal.same, moved.same, equal.same, f"A/A: σ of a pair {sigma:.4f}")
    gain = order.intent.expected_gain
    effect = log(float(gain.low)) if gain and gain.unit == "ratio" else 2 * margin
    good, idle = chances(primary.pairs, margin, effect, sigma), chances(primary.pairs, margin, 0.0, sigma)
    return Odds(
        gate.name,
        1 - good.faster,
        idle.faster,
        good.faster,
        f"gain {effect:+.3f} against margin {margin}, σ of a pair {sigma:.4f} ({manifest.noise.source})",
    )
