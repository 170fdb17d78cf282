"""``kld``: KL divergence and top-1 agreement against the incumbent, on the decode path; the quality gate of kernels."""

from __future__ import annotations

from collections.abc import Iterable

from runner.gates.base import GateInput, GateParameters, Limit
from runner.gates.common import Decision, Reading, by_limits, decide, figure, invalid, of_kind, verdict
from runner.model.sample import DivergenceMeasure
from runner.model.verdict import Status, Verdict
from runner.stats import DOCUMENTS, worst_end

NAME = "kld"
VERSION = 1


class Parameters(GateParameters):
    """Absolute bounds, sealed in the order."""

    bound: Limit
    """Largest mean KL, in nats a position: the high end of the interval of the median document lies below."""
    top1: Limit = "0.99"
    """Least share of positions at which both name the same most likely token."""
    worst: Limit | None = None
    """Largest KL of any single position, in nats."""
    coverage: Limit = "0.95"
    """Least coverage of the interval of the median document."""


def judge(given: GateInput) -> Verdict:
    """FAIL above a bound; UNRESOLVED where the incumbent against itself, batched otherwise, does not stay below it."""
    return verdict(NAME, VERSION, decide(Parameters, (DivergenceMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    measured = of_kind(readings, DivergenceMeasure)
    candidates = [pair for pair in measured if pair[0].window.arm == "candidate"]
    if not candidates:
        return invalid("no window of the candidate")
    if any(reading.window.control for reading, _ in candidates):
        return invalid("a control window proves nothing about the candidate")
    failures, figures = [], []
    for reading, divergence in candidates:
        name, found = reading.window.id, _means(divergence)
        if divergence.reference_window == name:
            return invalid(f"{name}: compared with itself")
        if len(found) < DOCUMENTS:
            return invalid(f"{name}: {len(found)} documents, at least {DOCUMENTS} are needed")
        high = worst_end(found, float(wanted.coverage)).high
        positions = sum(document.positions for document in divergence.documents)
        agreed = sum(document.top1_agree for document in divergence.documents) / positions
        worst = max(float(document.max_kl) for document in divergence.documents)
        figures += [
            figure(f"{name} mean KL, worst end", high, unit="nats", limit=f"<= {wanted.bound}"),
            figure(f"{name} top-1 agreement", agreed, limit=f">= {wanted.top1}"),
            figure(f"{name} largest KL", worst, unit="nats", limit=f"<= {wanted.worst}" if wanted.worst else ""),
        ]
        if high > float(wanted.bound):
            failures.append(f"{name}: mean KL up to {high:.3g} nats, the bound {wanted.bound}")
        if agreed < float(wanted.top1):
            failures.append(f"{name}: top-1 agrees at {agreed:.4f} of the positions, the bound {wanted.top1}")
        if wanted.worst is not None and worst > float(wanted.worst):
            failures.append(f"{name}: KL of a position up to {worst:.3g} nats, the bound {wanted.worst}")
    floor = floor_of(measured)
    figures.append(figure("incumbent against itself", floor, unit="nats"))
    if floor > float(wanted.bound):
        reason = f"the incumbent differs from itself by {floor:.3g} nats, above the bound {wanted.bound}"
        return Decision(Status.UNRESOLVED, (reason, *failures), tuple(figures))
    return by_limits(failures, tuple(figures), "the divergence stays inside the bounds")


def floor_of(measured: Iterable[tuple[Reading, DivergenceMeasure]]) -> float:
    """Largest mean KL of a document of the incumbent against itself, in nats."""
    incumbents = (divergence for reading, divergence in measured if reading.window.arm == "incumbent")
    return max((max(_means(divergence), default=0.0) for divergence in incumbents), default=0.0)


def _means(divergence: DivergenceMeasure) -> list[float]:
    return [float(document.mean_kl) for document in divergence.documents if document.positions]
