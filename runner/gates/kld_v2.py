"""``kld`` from version 2 on: every language of the documents decides by itself."""

from __future__ import annotations

from runner.gates.base import GateInput
from runner.gates.by_class import Classes, judge_classes
from runner.gates.common import Decision, Reading, decide, figure, invalid, of_kind, verdict
from runner.gates.kld import Parameters, floor_of
from runner.model.sample import DivergenceDocument, DivergenceMeasure
from runner.model.verdict import Status, Verdict
from runner.stats import DOCUMENTS, worst_end

NAME = "kld"
VERSION = 2


def judge(given: GateInput) -> Verdict:
    """FAIL above a bound in any language; UNRESOLVED where an interval reaches it, or where the incumbent against
    itself, batched otherwise, does not stay below it.
    """
    return verdict(NAME, VERSION, decide(Parameters, (DivergenceMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    measured = of_kind(readings, DivergenceMeasure)
    candidates = [pair for pair in measured if pair[0].window.arm == "candidate"]
    if not candidates:
        return invalid("no window of the candidate")
    if any(reading.window.control for reading, _ in candidates):
        return invalid("a control window proves nothing about the candidate")
    found = Classes()
    for reading, divergence in candidates:
        if divergence.reference_window == reading.window.id:
            return invalid(f"{reading.window.id}: compared with itself")
        documents = [one for one in divergence.documents if one.positions]
        if len(documents) < DOCUMENTS:
            return invalid(f"{reading.window.id}: {len(documents)} documents, at least {DOCUMENTS} are needed")
        if odd := [one.id for one in documents if not _language(one)]:
            return invalid(f"{reading.window.id}: {odd[0]} names no language")
        _judge_window(wanted, f"{reading.window.id} ", documents, found)
    floor = floor_of(measured)
    found.figures.append(figure("incumbent against itself", floor, unit="nats"))
    if floor > float(wanted.bound):
        reason = f"the incumbent differs from itself by {floor:.3g} nats, above the bound {wanted.bound}"
        return Decision(Status.UNRESOLVED, (reason, *found.failures), tuple(found.figures))
    return found.decision("the divergence stays inside the bounds in every language")


def _judge_window(wanted: Parameters, prefix: str, documents: list[DivergenceDocument], found: Classes) -> None:
    """Figures, failures and doubts of one window of the candidate, added to ``found``."""
    languages: dict[str, list[DivergenceDocument]] = {}
    for document in documents:
        languages.setdefault(_language(document), []).append(document)
    means = {language: [float(one.mean_kl) for one in own] for language, own in languages.items()}
    high = worst_end([mean for own in means.values() for mean in own], float(wanted.coverage)).high
    worst = max(float(document.max_kl) for document in documents)
    found.figures += [
        figure(f"{prefix}mean KL, worst end", high, unit="nats"),
        figure(f"{prefix}top-1 agreement", _agreed(documents)),
        figure(f"{prefix}largest KL", worst, unit="nats", limit=f"<= {wanted.worst}" if wanted.worst else ""),
    ]
    judge_classes(means, wanted.bound, wanted.coverage, found, unit="nats", prefix=prefix)
    for language, own in sorted(languages.items()):
        share = _agreed(own)
        found.figures.append(figure(f"{prefix}{language} top-1 agreement", share, limit=f">= {wanted.top1}"))
        if share < float(wanted.top1):
            found.failures.append(f"{prefix}{language}: top-1 agrees at {share:.4f} of the positions")
    if wanted.worst is not None and worst > float(wanted.worst):
        found.failures.append(f"{prefix}: KL of a position up to {worst:.3g} nats, the bound {wanted.worst}")


def _language(document: DivergenceDocument) -> str:
    """Of a drawn document, by its number: ``d009-code``; empty where it says none."""
    _, dash, language = document.id.rpartition("-")
    return language if dash else ""


def _agreed(documents: list[DivergenceDocument]) -> float:
    """Share of the positions at which both arms name the same most likely token."""
    return sum(one.top1_agree for one in documents) / sum(one.positions for one in documents)


__all__ = ["NAME", "VERSION", "Parameters", "judge"]
