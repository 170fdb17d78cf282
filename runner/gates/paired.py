"""Trials with a yes or no, the same ones in both arms: what the candidate loses, and what it wins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from runner.gates.base import GateParameters, Limit
from runner.gates.common import Decision, by_limits, figure
from runner.model.verdict import Status
from runner.stats import mcnemar, total


class PairedParameters(GateParameters):
    """How many trials may be lost."""

    lost: int = 0
    """Most trials in which the incumbent is right and the candidate is not."""
    alpha: Limit = "0.05"
    """Error of the exact one-sided McNemar test, which decides besides ``lost``."""
    incumbent: Limit = "0.8"
    """Least share of trials in which the incumbent must be right for them to say anything."""


class Words(NamedTuple):
    """What a gate calls its trials; ``{share}`` is the incumbent's."""

    share: str
    """Name of the figure."""
    standing: str
    """Of a standing configuration alone."""
    poor: str
    kept: str


def judge_pairs(
    wanted: PairedParameters, incumbent: Mapping[str, bool], candidate: Mapping[str, bool], words: Words
) -> Decision:
    """FAIL for lost trials, UNRESOLVED where the incumbent is right too rarely; without a candidate the incumbent."""
    share = total(incumbent.values()) / len(incumbent)
    figures = [figure(words.share, share, limit=f">= {wanted.incumbent}")]
    poor = share < float(wanted.incumbent)
    if not candidate:
        status = Status.FAIL if poor else Status.PASS
        return Decision(status, (words.standing.format(share=share),), tuple(figures))
    lost = [name for name, right in incumbent.items() if right and not candidate[name]]
    won = [name for name, right in candidate.items() if right and not incumbent[name]]
    chance = mcnemar(len(lost), len(won))
    figures += [
        figure("lost", len(lost), limit=f"<= {wanted.lost}"),
        figure("won", len(won)),
        figure("McNemar p", chance, limit=f"> {wanted.alpha}"),
    ]
    if len(lost) > wanted.lost or (lost and chance <= float(wanted.alpha)):
        return by_limits((f"lost: {', '.join(lost)}",), tuple(figures), "")
    if poor:
        return Decision(Status.UNRESOLVED, (words.poor.format(share=share),), tuple(figures))
    return by_limits((), tuple(figures), words.kept)
