"""``eager-gap``: what the candidate gains without graphs it also gains when graphs replay it."""

from __future__ import annotations

from math import exp, log
from statistics import median

from runner.gates.base import GateInput, GateParameters, Limit
from runner.gates.blocks import rate
from runner.gates.common import Decision, Reading, by_limits, decide, figure, invalid, verdict
from runner.model.sample import SpeedMeasure
from runner.model.verdict import Verdict

NAME = "eager-gap"
VERSION = 1

ENGINES = ("graphs", "eager")
"""Values of the window argument ``engine``: the two boots."""


class Parameters(GateParameters):
    """How much of a gain graphs may take away."""

    lost: Limit = "0.05"
    """Natural-log ratio by which the gain with graphs may lie below the gain without."""
    rounds: int = 3
    """Fewest rounds of both arms in each boot."""


def judge(given: GateInput) -> Verdict:
    """FAIL where graphs take the gain away: a shape captured untuned is correct, slow, and logs nothing (FL-08).

    Each gain is taken inside one boot, so what two boots differ by cancels out.
    """
    return verdict(NAME, VERSION, decide(Parameters, (SpeedMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    gains: dict[str, list[float]] = {}
    rates: dict[str, float] = {}
    for engine in ENGINES:
        own = [one for one in readings if one.window.arguments.get("engine") == engine]
        if len({one.sample.boot for one in own}) > 1:
            return invalid(f"{engine}: blocks of several boots")
        before, after = (_rates(own, arm) for arm in ("incumbent", "candidate"))
        if before.keys() != after.keys() or len(before) < wanted.rounds:
            return invalid(f"{engine}: {len(before)} rounds of the incumbent and {len(after)} of the candidate")
        if min((*before.values(), *after.values()), default=0.0) <= 0:
            return invalid(f"{engine}: a block without a rate")
        gains[engine] = [log(after[number] / before[number]) for number in before]
        rates[engine] = median(before.values())
    kept, had = median(gains["graphs"]), median(gains["eager"])
    figures = (
        figure("gain with graphs", exp(kept), unit="ratio"),
        figure("gain without graphs", exp(had), unit="ratio"),
        figure("gain that graphs take away", had - kept, unit="natural log", limit=f"<= {wanted.lost}"),
        figure("graphs over eager, incumbent", rates["graphs"] / rates["eager"], unit="ratio of two boots"),
    )
    failures = [f"{exp(had):.3f} times as fast without graphs, {exp(kept):.3f} times with them"]
    return by_limits(failures if had - kept > float(wanted.lost) else (), figures, "graphs keep the gain")


def _rates(readings: list[Reading], arm: str) -> dict[str, float]:
    """tok/s by round."""
    own = [one for one in readings if one.window.arm == arm]
    return {str(one.window.arguments.get("round")): rate(one, "decode-rate") for one in own}
