"""Facts that other orders state: a cited fact is the same there, and it still stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from runner.checks.facts import facts
from runner.checks.fault import Fault
from runner.errors import InputError
from runner.model.order import Fact, WorkOrder, load_order
from runner.paths import source_root, workspace
from runner.yaml_strict import MAX_BYTES


def citations(order: WorkOrder) -> Iterator[Fault]:
    """Every citation that does not hold."""
    for index, fact in enumerate(order.facts):
        if fact.status == "standing" and (message := _followed(fact, order.id)):
            yield Fault(("facts", index, "evidence", "fact"), f"{fact.id}: {message}")


def _followed(fact: Fact, order: str) -> str:
    """What is wrong with a citation, or with that of the fact it leads to, as far as they go; empty where all hold."""
    place, way = (order, fact.id), [(order, fact.id)]
    while (evidence := fact.evidence) is not None and evidence.order is not None:
        message, cited = _fault(fact, evidence.order, str(evidence.fact), place[0])
        if message or cited is None:
            return message
        fact, place = cited, (evidence.order, cited.id)
        if place in way:
            return f"its citations go in a circle: {', '.join('/'.join(one) for one in (*way, place))}"
        way.append(place)
    return ""


def _fault(fact: Fact, name: str, cited: str, citing: str) -> tuple[str, Fact | None]:
    """What is wrong with one citation, empty where it holds; and the fact that is cited."""
    if name == citing:
        return f"order {name} is its own evidence: a citation is of another order", None
    path = find_order(name)
    if path is None:
        return f"there is no order {name}", None
    try:
        order = load_order(path).order
    except InputError as error:
        return f"order {name} cannot be read: {error.what}", None
    known = {one.id: (index, one) for index, one in enumerate(order.facts)}
    if cited not in known:
        return f"order {name} has no fact {cited}", None
    index, there = known[cited]
    if there.status != "standing":
        instead = f"; {there.superseded_by} stands instead" if there.superseded_by else ""
        return f"fact {cited} of order {name} is {there.status}{instead}", None
    if (there.value, there.unit) != (fact.value, fact.unit):
        return f"order {name} says {there.value} {there.unit or ''}, not {fact.value} {fact.unit or ''}", None
    if there.label != fact.label:
        return f"order {name} calls it {there.label}, not {fact.label}", None
    wrong = next((fault.message for fault in facts(order) if fault.path[:2] == ("facts", index)), "")
    return (f"fact {cited} does not hold in order {name}: {wrong}" if wrong else ""), there


def find_order(name: str) -> Path | None:
    """The file of the order with this id, in the workspace or in this checkout; of several the latest version.

    A file that is called so and cannot be read is that of the order too, for want of another.
    """
    folders = [source_root() / "orders"]
    with suppress(InputError):  # called from outside any workspace
        folders.insert(0, workspace() / "orders")
    for folder in folders:
        found: list[tuple[int, Path]] = []
        for path in sorted(folder.glob("*.yaml")):
            if not path.is_file() or not (path.stem.lower() == name or _may_be(path, name)):
                continue
            try:
                order = load_order(path).order
            except InputError:
                found += [(-1, path)] if path.stem.lower() == name else []
            else:
                found += [(order.version, path)] if order.id == name else []
        if found:
            return max(found, key=lambda one: one[0])[1]
    return None


def namesakes(path: Path, order: WorkOrder) -> tuple[Path, ...]:
    """Other files of the folder that hold the same version of an order with this id."""
    found = []
    for other in sorted(path.parent.glob("*.yaml")):
        if other.is_file() and not other.samefile(path) and _may_be(other, order.id):
            with suppress(InputError):  # what cannot be read is no order
                known = load_order(other).order
                found += [other] if (known.id, known.version) == (order.id, order.version) else []
    return tuple(found)


def _may_be(path: Path, name: str) -> bool:
    """Whether the file may say this id: a whole order is read only where it may."""
    try:
        data = path.read_bytes() if path.stat().st_size <= MAX_BYTES else b""
    except OSError:
        return False
    return re.search(rf"""\bid["']?\s*:\s*["']?{re.escape(name)}(?![\w-])""".encode(), data) is not None
