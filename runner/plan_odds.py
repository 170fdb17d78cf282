"""How often each gate of a plan would be wrong, at the noise that the seat's manifest states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import comb, erfc, log, sqrt

from runner.model.order import GateOrder, Primary, RunnableOrder
from runner.model.plan import Plan, PlannedGate
from runner.model.seat import SeatManifest
from runner.noise import SIGMAS
from runner.plan import primary_of
from runner.plan_parameters import half_width
from runner.stats import FAMILY_ERROR, chances, half_width_within, noninferiority_power, sigma_of_half_width, total

_BY_DOCUMENT = {"kld": "bound", "ppl-prefill": "margin", "ppl-decode": "margin"}
"""Gates that judge the median document, and the parameter that it must not cross."""
_COVERAGE = 0.95
"""Coverage of their interval where the order names none."""
_ALWAYS = 0.9995
"""What is as good as certain is not worth a word."""
_LOSES = 0.2
"""A candidate that is worth refusing loses one needle in five."""

_EXACT = "exact on a deterministic seat: the same bytes give the same verdict"
_NOT_EXACT = "as on a deterministic seat; how far this one moves by itself is unknown until an A/A order has run"


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
    return tuple(_odds(gate, plan, order, manifest) for gate in plan.gates)


def _odds(gate: PlannedGate, plan: Plan, order: RunnableOrder, manifest: SeatManifest) -> Odds:
    primary = primary_of(order)
    if gate.name in _BY_DOCUMENT and (documents := _most(gate, plan, "documents")):
        return _by_document(gate, documents, _languages(gate, plan))
    if gate.name == "needle" and (trials := _needles(gate, plan)):
        return _by_needle(gate, trials)
    if gate.name != "speed" or primary is None:
        return Odds(gate.name, 0.0, 0.0, 1.0, _NOT_EXACT if manifest.adapter in ("docker", "attach") else _EXACT)
    return _of_all(_by_pair(gate, primary, order, manifest), 1 + len(primary.secondary))


def _of_all(one: Odds, metrics: int) -> Odds:
    """Of several metrics, all of which have to pass: bounds that hold whatever ties them together (Boole)."""
    if metrics == 1:
        return one
    fails = min(metrics * one.false_fail, 1.0)
    basis = f"{one.basis}; {metrics} metrics, each at {FAMILY_ERROR / metrics:g}: at least this power, at most those"
    return replace(one, false_fail=fails, power=1 - fails, basis=basis)


def _by_pair(gate: PlannedGate, primary: Primary, order: RunnableOrder, manifest: SeatManifest) -> Odds:
    """One metric of ``speed``."""
    sigma = sigma_of_half_width(float(half_width(primary, manifest)), primary.pairs)
    margin = float(primary.margin)
    if isinstance(order, GateOrder):
        equal = chances(primary.pairs, margin, 0.0, sigma)
        moved = chances(primary.pairs, margin, margin, sigma)
        return Odds(gate.name, 1 - equal.same, moved.same, equal.same, f"A/A: σ of a pair {sigma:.4f}")
    noise = manifest.noise
    source = noise.boot_to_boot_source if primary.pairing == "boot" else noise.source
    gain = order.intent.expected_gain
    effect = log(float(gain.low)) if gain and gain.unit == "ratio" else 2 * margin
    good, idle = chances(primary.pairs, margin, effect, sigma), chances(primary.pairs, margin, 0.0, sigma)
    floor = half_width_within(margin, sigma, primary.pairs) if "a_a_half_width" not in gate.parameters else 1.0
    passes = good.faster * floor * (1 - _control_fails(float(manifest.noise.boot_to_boot), effect - margin))
    return Odds(
        gate.name,
        1 - passes,
        idle.faster * floor,
        passes,
        f"gain {effect:+.3f} against margin {margin}, σ of a pair {sigma:.4f} ({source})"
        + (f"; the run's own A/A floor is inside it in {floor:.1%}" if floor < _ALWAYS else ""),
    )


def _control_fails(bound: float, room: float) -> float:
    """How often boots differ, by noise alone, beyond the seat's bound or by more than the gain has over the margin.

    The bound is three standard deviations (:data:`runner.noise.SIGMAS`).
    """
    return erfc(SIGMAS * min(1.0, room / bound) / sqrt(2)) / 2 if room > 0 else 1.0


def _most(gate: PlannedGate, plan: Plan, name: str) -> int:
    """The largest whole number of that name among the arguments of the gate's windows."""
    values = [window.arguments.get(name) for window in plan.windows if window.id in gate.windows]
    return max((value for value in values if isinstance(value, int)), default=0)


def _languages(gate: PlannedGate, plan: Plan) -> int:
    """Classes of documents that decide by themselves: from version 2 on each language, before that all together."""
    named = [window.arguments.get("languages") for window in plan.windows if window.id in gate.windows]
    counts = [len(languages) for languages in named if isinstance(languages, list) and languages]
    return max(counts, default=1) if gate.version > 1 else 1


def _by_document(gate: PlannedGate, documents: int, languages: int) -> Odds:
    """Whatever the noise: a median document at the limit leaves each document on either side with one half.

    The harm is in one class, the smallest; the others are as before.
    """
    limit, coverage = _BY_DOCUMENT[gate.name], gate.parameters.get("coverage", _COVERAGE)
    own = documents // languages
    passes = noninferiority_power(own, 1.0, 1.0, 1.0, float(str(coverage)))
    those = f"{documents} documents" if languages == 1 else f"{documents} documents, {own} or more of each language"
    whose = "all documents" if languages == 1 else "one language's documents"
    harm = f"harm: half of {whose} beyond {limit} {gate.parameters.get(limit)}"
    return Odds(gate.name, 0.0, passes, 1.0, f"{those}; {harm}")


def _needles(gate: PlannedGate, plan: Plan) -> int:
    """Needles that each arm is asked for."""
    sizes = [
        len(depths) * len(languages)
        for window in plan.windows
        if window.id in gate.windows
        and isinstance(depths := window.arguments.get("depths"), list)
        and isinstance(languages := window.arguments.get("languages"), list)
    ]
    return max(sizes, default=0)


def _by_needle(gate: PlannedGate, trials: int) -> Odds:
    allowed = int(str(gate.parameters.get("lost", 0)))
    passes = total(comb(trials, lost) * _LOSES**lost * (1 - _LOSES) ** (trials - lost) for lost in range(allowed + 1))
    harm = f"harm: every needle is lost with {_LOSES:.0%}"
    return Odds(gate.name, 0.0, passes, 1.0, f"{trials} needles, {allowed} may be lost; {harm}")
