"""Facts that other orders state: a cited fact is the same there, and it still stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from runner.checks.fault import Fault
from runner.errors import InputError
from runner.model.order import Fact, WorkOrder, load_order
from runner.paths import source_root, workspace
from runner.yaml_strict import MAX_BYTES


def citations(order: WorkOrder) -> Iterator[Fault]:
    """Every citation that does not hold."""
    for index, fact in enumerate(order.facts):
        evidence = fact.evidence
        if evidence is None or evidence.order is None or fact.status != "standing":
            continue
        message = _fault(fact, evidence.order, str(evidence.fact))
        if message:
            yield Fault(("facts", index, "evidence", "fact"), f"{fact.id}: {message}")


def _fault(fact: Fact, name: str, cited: str) -> str:
    """What is wrong with one citation; empty where it holds."""
    path = find_order(name)
    if path is None:
        return f"there is no order {name}"
    try:
        known = {one.id: one for one in load_order(path).order.facts}
    except InputError as error:
        return f"order {name} cannot be read: {error.what}"
    if cited not in known:
        return f"order {name} has no fact {cited}"
    there = known[cited]
    if there.status != "standing":
        instead = f"; {there.superseded_by} stands instead" if there.superseded_by else ""
        return f"fact {cited} of order {name} is {there.status}{instead}"
    if (there.value, there.unit) != (fact.value, fact.unit):
        return f"order {name} says {there.value} {there.unit or ''}, not {fact.value} {fact.unit or ''}"
    if there.label != fact.label:
        return f"order {name} calls it {there.label}, not {fact.label}"
    return ""


def find_order(name: str) -> Path | None:
    """The file of an order, in the workspace or in this checkout; ``t5`` may lie in ``T5.yaml``."""
    folders = [source_root() / "orders"]
    with suppress(InputError):  # called from outside any workspace
        folders.insert(0, workspace() / "orders")
    files = (path for folder in folders for path in sorted(folder.glob("*.yaml")))
    return next((path for path in files if path.stem.lower() == name), None)


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
