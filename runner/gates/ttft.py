"""``ttft``: the first token of a long prompt comes no later than with the incumbent, in the same boot."""

from __future__ import annotations

from math import exp, log
from statistics import median

from runner.gates.base import GateInput, GateParameters, Limit
from runner.gates.common import Decision, Reading, by_limits, decide, figure, invalid, of_kind, verdict
from runner.model.answer_measure import FirstToken, TtftMeasure
from runner.model.verdict import Status, Verdict
from runner.stats import full_coverage, median_interval

NAME = "ttft"
VERSION = 1


class Parameters(GateParameters):
    """How much later is too late."""

    margin: Limit = "0.05"
    """Natural-log ratio of candidate over incumbent that the whole interval has to stay below."""
    coverage: Limit = "0.95"
    """Least coverage of the interval of the median prompt."""


def judge(given: GateInput) -> Verdict:
    """FAIL with half of the prompts later than the margin, UNRESOLVED where the interval reaches it.

    A reading of another boot, another day or with a warm prefix cache says nothing (SF-04): arms of one boot alone.
    """
    return verdict(NAME, VERSION, decide(Parameters, (TtftMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    boots = {reading.sample.boot for reading in readings}
    if len(boots) != 1:
        return invalid(f"first tokens of {len(boots)} boots are not compared")
    incumbent, candidate = _texts(readings, "incumbent"), _texts(readings, "candidate")
    if not incumbent or _asked(incumbent) != _asked(candidate):
        return invalid("the arms were not asked the same prompts")
    if full_coverage(len(incumbent)) < float(wanted.coverage):
        return invalid(f"{len(incumbent)} prompts cannot cover the median with {wanted.coverage}")
    if any(text.ttft_ns < 1 for text in (*incumbent.values(), *candidate.values())):
        return invalid("a prompt without a first token")
    ratios = [log(candidate[name].ttft_ns / incumbent[name].ttft_ns) for name in incumbent]
    interval, middle = median_interval(ratios, float(wanted.coverage)), median(ratios)
    figures = (
        figure("prompts", len(ratios)),
        figure("tokens of a prompt", median(text.prompt_tokens for text in incumbent.values())),
        figure("incumbent p50", median(text.ttft_ns for text in incumbent.values()) / 1e6, unit="ms"),
        figure("candidate over incumbent", exp(middle), unit="ratio"),
        figure("coverage", interval.coverage, limit=f">= {wanted.coverage}"),
        figure("worst end", interval.high, unit="natural log", limit=f"<= {wanted.margin}"),
    )
    if middle > float(wanted.margin):
        return by_limits((f"half of the prompts wait {exp(middle):.3f} times as long or longer",), figures, "")
    if interval.high > float(wanted.margin):
        reason = f"the interval reaches {interval.high:.4g}, the margin is {wanted.margin}"
        return Decision(Status.UNRESOLVED, (reason,), figures)
    return by_limits((), figures, "the first token comes no later")


def _texts(readings: tuple[Reading, ...], arm: str) -> dict[str, FirstToken]:
    """By window block and text, so that the same prompt of another round is another one."""
    found = [(one, measure) for one, measure in of_kind(readings, TtftMeasure) if one.window.arm == arm]
    return {f"{one.window.arguments.get('round')}/{text.id}": text for one, measure in found for text in measure.texts}


def _asked(texts: dict[str, FirstToken]) -> dict[str, int]:
    return {name: text.prompt_tokens for name, text in texts.items()}
