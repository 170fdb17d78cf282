"""``four-streams``: several streams at once are no slower than with the incumbent, in every language."""

from __future__ import annotations

from math import exp, log
from statistics import median

from runner.gates.base import GateInput, GateParameters, Limit
from runner.gates.blocks import rate, speed_of
from runner.gates.common import Decision, Reading, by_limits, decide, figure, invalid, verdict
from runner.model.sample import SpeedMeasure
from runner.model.verdict import Figure, Status, Verdict
from runner.stats import compare, supports

NAME = "four-streams"
VERSION = 1


class Parameters(GateParameters):
    """What is lost where requests share a step; not the order's primary figure."""

    margin: Limit = "0.05"
    """Natural-log ratio: the low end of a language's interval must not lie below minus this."""
    least: Limit | None = None
    """Least median rate of the candidate's streams together, in tok/s, in every language."""


def judge(given: GateInput) -> Verdict:
    """FAIL naming the language; UNRESOLVED where an interval reaches below the margin.

    A round is one block of each arm in one boot on the same prompts, each stream with its own; the interval is that of
    the median round. One figure a language, so each language needs enough rounds for itself.
    """
    return verdict(NAME, VERSION, decide(Parameters, (SpeedMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    languages = sorted({str(one.window.arguments.get("language")) for one in readings})
    failures: list[str] = []
    doubts: list[str] = []
    figures: list[Figure] = []
    for language in languages:
        own = [one for one in readings if one.window.arguments.get("language") == language]
        if any(speed_of(one).streams != 4 for one in own):
            return invalid(f"{language}: a block of another number of streams than four")
        before, after = _by_round(own, "incumbent"), _by_round(own, "candidate")
        if before.keys() != after.keys() or not supports(1, len(before)):
            return invalid(f"{language}: {len(before)} rounds of the incumbent and {len(after)} of the candidate")
        if any(one.sample.boot != after[number].sample.boot for number, one in before.items()):
            return invalid(f"{language}: the blocks of a round are of two boots")
        rates = {arm: [_rate(one) for one in rounds.values()] for arm, rounds in (("i", before), ("c", after))}
        if min((*rates["i"], *rates["c"])) <= 0:
            return invalid(f"{language}: a block without a rate")
        pairs = [log(_rate(after[number]) / _rate(before[number])) for number in before]
        found = compare(pairs, float(wanted.margin))
        together = median(rates["c"])
        figures += [
            figure(f"{language} candidate", together, unit="tok/s", limit=f">= {wanted.least}" if wanted.least else ""),
            figure(f"{language} ratio", exp(found.median), unit="ratio"),
            figure(f"{language} low end", found.interval.low, unit="natural log", limit=f">= -{wanted.margin}"),
            figure(f"{language} high end", found.interval.high, unit="natural log"),
        ]
        if found.outcome == "SLOWER":
            failures.append(
                f"{language}: {exp(found.median):.3f} times the incumbent's rate, and slower in every round"
            )
        elif found.interval.low < -float(wanted.margin):
            doubts.append(f"{language}: the interval reaches {found.interval.low:.3f}, the margin is {wanted.margin}")
        if wanted.least is not None and together < float(wanted.least):
            failures.append(f"{language}: {together:.1f} tok/s, at least {wanted.least}")
    if doubts and not failures:
        return Decision(Status.UNRESOLVED, tuple(doubts), tuple(figures))
    return by_limits(failures, tuple(figures), "four streams are no slower in any language")


def _by_round(readings: list[Reading], arm: str) -> dict[str, Reading]:
    return {str(one.window.arguments.get("round")): one for one in readings if one.window.arm == arm}


def _rate(reading: Reading) -> float:
    return rate(reading, "aggregate-rate")
