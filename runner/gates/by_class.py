"""Documents judged class by class: a ruined language shows, however many others are as they were.

Each class has to hold by itself, so no class is outvoted; since all of them must, no correction for several classes is
needed against a false pass (an intersection–union test: Berger, *Technometrics* 24, 1982). A median says nothing of the
worst half, hence the second figure: the mean of what documents lose, gains not counted. No document of a class of n can
then be worse by more than n times the limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from runner.gates.common import Decision, figure
from runner.model.verdict import Figure, Status
from runner.stats import full_coverage, median_interval, total


@dataclass
class Classes:
    """What was found out about all classes of documents."""

    failures: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)

    def decision(self, passed: str) -> Decision:
        """FAIL with any failure, UNRESOLVED with any doubt, else PASS."""
        reasons = tuple(self.failures or self.doubts or (passed,))
        status = Status.FAIL if self.failures else Status.UNRESOLVED if self.doubts else Status.PASS
        return Decision(status, reasons, tuple(self.figures))


def judge_classes(
    losses: Mapping[str, Sequence[float]], limit: str, coverage: str, found: Classes, *, unit: str, prefix: str = ""
) -> None:
    """Every class of ``losses`` (by document, positive is worse) against the ``limit``, added to ``found``.

    A failure where the median document or the mean loss lies beyond it; a doubt where the interval of the median
    reaches it, or a class has too few documents to have one.
    """
    for name, own in sorted(losses.items()):
        middle, mean = median(own), total(max(loss, 0.0) for loss in own) / len(own)
        interval, label = median_interval(own, float(coverage)), f"{prefix}{name}"
        found.figures += [
            figure(f"{label} documents", len(own)),
            figure(f"{label} median", middle, unit=unit, limit=f"<= {limit}"),
            figure(f"{label} worst end", interval.high, unit=unit, limit=f"<= {limit}"),
            figure(f"{label} mean loss", mean, unit=unit, limit=f"<= {limit}"),
        ]
        if middle > float(limit):
            found.failures.append(f"{label}: half of the documents are worse by more than {middle:.4g} {unit}")
        elif mean > float(limit):
            found.failures.append(f"{label}: documents lose {mean:.4g} {unit} in the mean, the limit is {limit}")
        elif full_coverage(len(own)) < float(coverage):
            found.doubts.append(f"{label}: {len(own)} documents cannot cover the median with {coverage}")
        elif interval.high > float(limit):
            found.doubts.append(f"{label}: the interval reaches {interval.high:.4g} {unit}, the limit is {limit}")
