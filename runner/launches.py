"""The command line of each planned boot on a docker seat, as far as it is known before the seat's machine is."""

from __future__ import annotations

from dataclasses import replace

from runner.loading import first_variant, loads
from runner.model.order import RunnableOrder
from runner.model.plan import Plan, PlannedBoot
from runner.model.seat import SeatManifest
from runner.paths import source_root
from serve.adapters.docker_host import places_of
from serve.adapters.docker_launch import TREE, launch_of
from serve.seat import BootRequest

RUN, PRODUCT = "{run}", "{product}"


def launches(plan: Plan, order: RunnableOrder, manifest: SeatManifest) -> dict[str, list[str]]:
    """Words of ``docker run`` by boot; empty for a seat without a container.

    In braces stands what belongs to the run: its name, the port, libraries that are still to be built. A digest that
    nobody recorded is called ``unknown``.
    """
    if manifest.container is None:
        return {}
    return {boot.id: ["docker", *_argv(boot, plan, order, manifest)] for boot in plan.boots if boot.role != "desk"}


def _argv(boot: PlannedBoot, plan: Plan, order: RunnableOrder, manifest: SeatManifest) -> list[str]:
    candidate, pack = getattr(order, "candidate", None), source_root() / manifest.pack
    libraries = {variant: f"{{library {name}}}" for variant, name in loads(boot, plan).items()}
    request = BootRequest(
        planned=boot,
        manifest=manifest,
        pack=pack,
        libraries={},
        variant=first_variant(boot, plan),
        allowed_declines=candidate.allowed_declines if candidate else (),
        folder=pack,
    )
    places = places_of(manifest)
    if boot.product:
        places = replace(places, tree=TREE) if order.kind == "patch" else replace(places, pack=PRODUCT)
    return launch_of(request, places, RUN, libraries).argv()


__all__ = ["launches"]
