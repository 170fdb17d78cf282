"""``product``: what a recipe made is what was asked for and sealed, and the candidate's boot served it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from runner.gates.base import GateInput, GateParameters
from runner.gates.common import Decision, Reading, by_limits, decide, invalid, of_kind, verdict
from runner.model.base import Digest
from runner.model.boot import BootRecord
from runner.model.sample import ProductMeasure
from runner.model.verdict import Figure, Status, Verdict

NAME = "product"
VERSION = 1


class Parameters(GateParameters):
    """What the product must be."""

    digests: dict[str, Digest] = {}
    """Sealed by the plan: what the product was before the first boot."""
    loaded: Literal["changed", "same", "code"] = "changed"
    """What each rank of the candidate's boot must have loaded, against the same rank of the incumbent's: other weights,
    the same weights (the change is in parts that this seat does not load, such as a draft layer), or the sealed
    ``tree`` of code, which no rank of the incumbent's may have loaded."""


def judge(given: GateInput) -> Verdict:
    """FAIL for a fault of the product, for another product than the sealed one and for a rank that loaded otherwise.

    What lies on disk is judged before any engine has been booted, so that a kill line stops there; NOT_RUN until both
    arms have been served.
    """
    return verdict(NAME, VERSION, decide(Parameters, (ProductMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    found = [measure for _, measure in of_kind(readings, ProductMeasure)]
    if not wanted.digests:
        return invalid("the plan sealed no product")
    failures: list[str] = []
    figures: list[Figure] = []
    for product in found:
        failures += product.faults
        for name, sealed in sorted(wanted.digests.items()):
            now = product.digests.get(name, "none")
            figures.append(Figure(name=name, value=now, limit=sealed))
            if now != sealed:
                failures.append(f"{name} is {now}, sealed was {sealed}")
        figures += [Figure(name=name, value=value) for name, value in sorted(product.summary.items())]
    if failures:
        return by_limits(failures, tuple(figures), "")
    served = {arm: _booted(given, product=arm == "candidate") for arm in ("incumbent", "candidate")}
    missing = [arm for arm, planned in served.items() if not all(boots for boots in planned.values())]
    if missing or not served["candidate"] or not served["incumbent"]:
        reason = f"no boot of the {' and the '.join(missing or ['two arms'])} says what its ranks loaded"
        return Decision(Status.NOT_RUN, (reason,), tuple(figures))
    loaded = {arm: [boot for boots in planned.values() for boot in boots] for arm, planned in served.items()}
    if wanted.loaded == "code":
        failures += _other_code(wanted.digests.get("tree", "none"), loaded["incumbent"], loaded["candidate"])
    else:
        failures += _other_weights(wanted.loaded, loaded["incumbent"], loaded["candidate"])
    failures += _other_product(wanted.digests, loaded["candidate"])
    figures.append(Figure(name="loaded against the incumbent", value=wanted.loaded))
    return by_limits(failures, tuple(figures), "the product is what was asked for and sealed, and it was served")


def _booted(given: GateInput, *, product: bool) -> dict[str, list[BootRecord]]:
    """By planned boot of one arm: the boots that came up and named their ranks."""
    planned = [boot.id for boot in given.planned_boots if boot.role != "desk" and boot.product == product]
    return {name: [boot for boot in given.boots if boot.planned == name and boot.ranks] for name in planned}


def _other_weights(wanted: str, incumbents: list[BootRecord], candidates: list[BootRecord]) -> Iterable[str]:
    """Rank by rank, each boot of the candidate against each boot of the incumbent."""
    for candidate in candidates:
        for incumbent in incumbents:
            theirs = {rank.rank: rank.weights for rank in incumbent.ranks}
            for rank in candidate.ranks:
                same = rank.weights == theirs.get(rank.rank)
                if same != (wanted == "same"):
                    how = "the incumbent's weights" if same else "other weights than the incumbent's"
                    yield f"rank {rank.rank} of {candidate.id} loaded {how}, wanted was {wanted}"


def _other_product(sealed: dict[str, Digest], candidates: list[BootRecord]) -> Iterable[str]:
    """What lay on disk once each boot had ended, where its record says so: records from before it was read do not."""
    for boot in candidates:
        for name, found in sorted(boot.product.items()):
            if found != sealed.get(name):
                yield f"{name} after {boot.id} is {found}, sealed was {sealed.get(name, 'none')}"
        yield from (f"the product changed while {boot.id} could read it: {change}" for change in boot.product_changes)


def _other_code(tree: str, incumbents: list[BootRecord], candidates: list[BootRecord]) -> Iterable[str]:
    """The digest of the product's code, as each rank read it from the modules it had imported."""
    for boots, expected in ((candidates, tree), (incumbents, "none")):
        for boot in boots:
            for rank in boot.ranks:
                found = rank.trees.get("product", "none")
                if found != expected:
                    yield f"rank {rank.rank} of {boot.id} imported product code {found}, expected {expected}"
