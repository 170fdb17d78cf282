"""Whether a boot loaded what was built and planned, rank by rank, and on the machine and devices of the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from runner.loading import library_of
from runner.model.boot import NO_WEIGHTS, BootRecord
from runner.model.plan import Plan, PlannedBoot
from runner.plan_layout import SPECULATIVE_CONFIG


def identity_faults(boot: BootRecord, planned: PlannedBoot, plan: Plan) -> tuple[str, ...]:
    """What the boot loaded that the plan did not seal, or did not load although the plan names it.

    Compared are digests that both sides have: a seat that loads no native library says nothing about one.
    """
    return tuple(_faults(boot, planned, plan))


def _faults(boot: BootRecord, planned: PlannedBoot, plan: Plan) -> Iterator[str]:
    sealed = plan.subjects
    engine = sealed.get("engine.record")
    served = planned.role != "desk"  # on a desk kernels run alone: what it names is the torch beside them
    if served and boot.engine and engine is not None and boot.engine.get("record") != engine:
        yield f"engine {boot.engine.get('record', 'unknown')} answered, sealed was {engine}"
    for rank in boot.ranks:
        for variant, found in rank.libraries.items():
            name = f"library.{library_of(variant, planned, plan)}"
            if name in sealed and found != sealed[name]:
                yield f"rank {rank.rank} loaded {found} as {variant}, sealed was {sealed[name]} ({name})"
        for variant in planned.libraries:
            if f"library.{library_of(variant, planned, plan)}" in sealed and variant not in rank.libraries:
                yield f"rank {rank.rank} did not load the library of {variant}"
        for tree, found in rank.trees.items():
            if found != sealed.get(f"tree.{tree}", found):
                yield f"rank {rank.rank} imported {tree} {found}, sealed was {sealed[f'tree.{tree}']}"


def weights_faults(boots: Iterable[BootRecord], plan: Plan) -> tuple[str, ...]:
    """Ranks that did not load the same bytes in every boot: another pack under one name, or a file that changed.

    Compared are boots that serve alike: a recipe's product and a draft layer are other weights on purpose.
    """
    planned, faults = {boot.id: boot for boot in plan.boots}, []
    first: dict[tuple[bool, str, int], tuple[str, str]] = {}
    for boot in boots:
        known = planned[boot.planned]
        for rank in boot.ranks:
            if rank.weights == NO_WEIGHTS:
                continue
            key = (known.product, str(known.arguments.get(SPECULATIVE_CONFIG)), rank.rank)
            origin, weights = first.setdefault(key, (boot.id, rank.weights))
            if rank.weights != weights:
                faults.append(f"rank {rank.rank} loaded weights {rank.weights} in {boot.id}, {weights} in {origin}")
    return tuple(faults)


def host_faults(boots: Iterable[BootRecord], plan: Plan) -> tuple[str, ...]:
    """Boots on another machine, or ranks on another device, than the first boot of their kind: they are never pooled.

    An engine's ranks are compared with each other, and a desk's cards; a desk on the processor has no device, and one
    in which nothing answered only looked at what the others left.
    """
    desks, faults = {boot.id for boot in plan.boots if boot.role == "desk"}, []
    hosts: list[tuple[str, str]] = []
    first: dict[tuple[bool, int], tuple[str, tuple[str, ...]]] = {}
    for boot in boots:
        desk = boot.planned in desks
        if not desk or boot.engine:
            hosts.append((boot.id, boot.host or "unknown"))
        for rank in boot.ranks:
            if desk and not rank.devices:
                continue
            origin, devices = first.setdefault((desk, rank.rank), (boot.id, rank.devices))
            if rank.devices != devices:
                here, there = (", ".join(found) or "none" for found in (rank.devices, devices))
                faults.append(f"rank {rank.rank} had device {here} in {boot.id}, {there} in {origin}")
    faults += [
        f"{name} ran on host {host}, {hosts[0][0]} on {hosts[0][1]}" for name, host in hosts if host != hosts[0][1]
    ]
    return tuple(faults)


__all__ = ["host_faults", "identity_faults", "weights_faults"]
