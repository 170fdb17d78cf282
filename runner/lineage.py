"""In which order a ledger's statements were made, and which of them bear an earlier time than what they have seen.

A statement bears the time that its signer wrote. It names what it has seen, so it is no older than that: a decision
that bears an earlier time than what it rests on was dated back, as with a key that has expired since. A time ahead of
all clocks holds nobody up: a statement that a runner signs on top shows that what lies below was there by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from runner.attest.statement import ROLE_OF, Signed, moment
from runner.attest.trust import Trust
from runner.model.adoption import Adoption, Reproduction, Revocation, Waiver
from runner.model.statement import Predicate


@dataclass(frozen=True)
class Lineage:
    """What follows from the parents that statements name; everything by digest."""

    made: dict[str, datetime]
    """When a statement was there at the latest: its own time, or the earlier one of a runner's statement on top."""
    seen: dict[str, datetime]
    """The latest of ``made`` among a statement and all that it rests on."""
    place: dict[str, int]
    """Longest way down to a statement without parents: among those of one time the lower was there before."""


def trace(entries: Mapping[str, Signed], trust: Trust) -> Lineage:
    """The lineage of ``entries``; a parent that is not among them is left out.

    Only statements count as later ones that a runner makes, with a key that decides nothing: whoever dates a decision
    back cannot date back with the same key what would excuse it.
    """
    deciding = {signer.key.id for signer in trust.signers if signer.role == "adopter"}
    parents = {
        digest: [parent for parent in each.predicate.parents if parent in entries] for digest, each in entries.items()
    }
    order = list(_parents_first(parents))
    made = {digest: entries[digest].at for digest in order}
    by_then: dict[str, datetime] = {}
    for digest in reversed(order):
        times = [by_then[digest]] if digest in by_then else []
        each = entries[digest]
        if ROLE_OF[type(each.predicate)] == "runner" and not deciding & each.keys:
            times.append(each.at)
        made[digest] = min(made[digest], *times) if times else made[digest]
        if times:
            for parent in parents[digest]:
                by_then[parent] = min(by_then.get(parent, times[0]), *times)
    seen, place = dict[str, datetime](), dict[str, int]()
    for digest in order:
        seen[digest] = max([made[digest], *(seen[parent] for parent in parents[digest])])
        place[digest] = 1 + max((place[parent] for parent in parents[digest]), default=-1)
    return Lineage(made, seen, place)


def _parents_first(parents: Mapping[str, list[str]]) -> Iterator[str]:
    """Every digest once, after its parents; digests of files cannot form a ring."""
    done = set[str]()
    for start in parents:
        ahead = [start]
        while ahead:
            if ahead[-1] in done:
                ahead.pop()
                continue
            if missing := [parent for parent in parents[ahead[-1]] if parent not in done]:
                ahead += missing
                continue
            done.add(ahead[-1])
            yield ahead.pop()


def about(made: Predicate) -> tuple[str, ...]:
    """Digests of the statements that this one is about."""
    if isinstance(made, Adoption | Waiver):
        return (made.report.digest,)
    if isinstance(made, Reproduction):
        return (made.report.digest, made.again.digest)
    return (made.revokes,) if isinstance(made, Revocation) else ()


def dated_back(made: Predicate, lineage: Lineage, entries: Mapping[str, Signed]) -> str:
    """What a decision has seen, or is about, that is newer than the time it bears; empty where nothing is."""
    at = moment(made.created_at, "this decision")
    named = {digest for digest in (*made.parents, *about(made)) if digest in entries}
    if all(lineage.seen[digest] <= at for digest in named):
        return ""
    later = [entries[digest] for digest in _below(named, entries) if lineage.made[digest] > at]
    newest = max(later, key=lambda other: (lineage.made[other.digest], other.digest))
    return f"{newest.where} of {newest.predicate.created_at}"


def _below(digests: Iterable[str], entries: Mapping[str, Signed]) -> set[str]:
    """These and all that they rest on."""
    found, ahead = set[str](), list(digests)
    while ahead:
        digest = ahead.pop()
        if digest in entries and digest not in found:
            found.add(digest)
            ahead += entries[digest].predicate.parents
    return found


__all__ = ["Lineage", "about", "dated_back", "trace"]
