"""Facts: what a probe contradicts, and what rests on a fact that no longer stands."""

from __future__ import annotations

from collections.abc import Iterator

from runner.checks.fault import Fault
from runner.model.order import Fact, WorkOrder
from runner.probes import findings, operands

Path = tuple[str | int, ...]


def facts(order: WorkOrder) -> Iterator[Fault]:
    """Every fault of the order's facts and of what rests on them. A refuted fact itself is no fault: it is kept."""
    known = {fact.id: fact for fact in order.facts}
    for index, fact in enumerate(order.facts):
        yield from _one(("facts", index), fact, known)
    place = {fact.id: index for index, fact in enumerate(order.facts)}
    for finding in findings(order.facts):
        fact = known[finding.fact]
        if finding.agrees is False and fact.status == "standing":
            message = f"{fact.id}: {fact.value or fact.statement!r} is stated, the probe gives {finding.found}"
            yield Fault(("facts", place[fact.id], "probe"), message)
    fallen = _fallen(order.facts)
    for name, why in fallen.items():
        if known[name].status == "standing":
            yield Fault(("facts", place[name], "probe"), f"{name} is derived from {why}")
    for path, ids in _rests(order):
        for position, name in enumerate(ids):
            yield from _standing((*path, "rests_on", position), name, known, fallen)


def _fallen(facts: tuple[Fact, ...]) -> dict[str, str]:
    """Facts that are reckoned, at any depth, from one that no longer stands; and from which."""
    behind = {fact.id: operands(fact, facts) for fact in facts}
    fallen: dict[str, str] = {}
    while True:
        found = {}
        for name, used in behind.items():
            for one in used if name not in fallen else ():
                if one.status != "standing":
                    found[name] = f"{one.id}, which is {one.status}"
                elif one.id in fallen:
                    found[name] = f"{one.id}, and that from {fallen[one.id]}"
        if not found:
            return fallen
        fallen |= found


def _one(path: Path, fact: Fact, known: dict[str, Fact]) -> Iterator[Fault]:
    if fact.status == "superseded" and fact.superseded_by is None:
        yield Fault((*path, "superseded_by"), f"{fact.id} is superseded by nothing")
    if fact.superseded_by is not None and fact.superseded_by not in known:
        yield Fault((*path, "superseded_by"), f"there is no fact {fact.superseded_by!r} here")
    elif fact.superseded_by is not None and (wrong := _succession(fact, known)):
        yield Fault((*path, "superseded_by"), f"{fact.id} is superseded by {wrong}")
    if fact.superseded_by is not None and fact.status == "standing":
        yield Fault((*path, "status"), f"{fact.id} stands and is superseded by {fact.superseded_by}")
    if fact.label == "measured" and fact.evidence is None and fact.probe is None:
        yield Fault((*path, "label"), f"{fact.id} is called measured, without evidence or probe; else it is assumed")


def _succession(fact: Fact, known: dict[str, Fact]) -> str:
    """What is wrong with whatever took the place of a fact at last; empty where that stands."""
    seen, last = {fact.id}, fact
    while last.superseded_by is not None and (last is fact or last.status == "superseded"):
        if last.superseded_by in seen:
            return f"itself: {last.id} is superseded by {last.superseded_by}"
        if last.superseded_by not in known:
            return ""  # said at that fact
        last = known[last.superseded_by]
        seen.add(last.id)
    return f"{last.id}, which is refuted" if last.status == "refuted" and last is not fact else ""


def _standing(path: Path, name: str, known: dict[str, Fact], fallen: dict[str, str]) -> Iterator[Fault]:
    if name not in known:
        yield Fault(path, f"no fact {name!r} here")
        return
    fact = known[name]
    if fact.status != "standing":
        instead = f"; {fact.superseded_by} stands instead" if fact.superseded_by else ""
        yield Fault(path, f"rests on fact {name}, which is {fact.status}{instead}")
    elif name in fallen:
        yield Fault(path, f"rests on fact {name}, which is derived from {fallen[name]}")
    elif "scope" not in fact.model_fields_set:
        yield Fault(path, f"rests on fact {name}, which does not say where it holds (scope)")


def _rests(order: WorkOrder) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Everything that can rest on facts."""
    for index, request in enumerate(order.gates):
        yield ("gates", index), request.rests_on
    for index, line in enumerate(order.kill_lines):
        yield ("kill_lines", index), line.rests_on
    for index, floor in enumerate(order.floors):
        yield ("floors", index), floor.rests_on
    for index, ceiling in enumerate(order.intent.ceiling_not_for_verdict):
        yield ("intent", "ceiling_not_for_verdict", index), ceiling.rests_on
    if order.intent.expected_gain:
        yield ("intent", "expected_gain"), order.intent.expected_gain.rests_on
