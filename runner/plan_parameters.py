"""The parameters a gate is sealed with: the order's own over what the order and the seat say elsewhere."""

from __future__ import annotations

from decimal import Decimal

from pydantic import JsonValue

from runner.digest import sha256_json
from runner.model.order import GateOrder, GateRequest, KernelOrder, Primary, RunnableOrder, WorkOrder
from runner.model.seat import SeatManifest

_JUDGES = ("primary", "gates", "kill_lines", "floors")
"""Fields of an order that decide."""
BROKEN_OFF = 1
"""A crash happens; one that comes twice while blocks are timed may be somebody's choice."""


def judgement_digest(order: WorkOrder) -> str:
    """SHA-256 of everything in the order that decides; brief and plan both show it."""
    dumped = order.model_dump(mode="json")
    return sha256_json({name: dumped.get(name) for name in _JUDGES})


def half_width(primary: Primary, manifest: SeatManifest) -> Decimal:
    """Half width of equal arms with the order's pairing, as a natural-log ratio.

    Blocks of different boots differ by the seat's spread between boots, for want of an A/A record paired so.
    """
    noise = manifest.noise
    return Decimal(noise.boot_to_boot if primary.pairing == "boot" else noise.a_a_half_width)


def sealed_parameters(order: RunnableOrder, manifest: SeatManifest, request: GateRequest) -> dict[str, JsonValue]:
    """Parameters of one gate; for ``speed`` the primary metric's margin and the seat's measured noise are filled in."""
    given: dict[str, JsonValue] = {}
    primary = order.primary if isinstance(order, KernelOrder | GateOrder) else None
    if request.name == "speed" and primary is not None:
        given |= {"metric": primary.metric, "margin": primary.margin}
        given |= {"boot_to_boot": manifest.noise.boot_to_boot, "broken_off": BROKEN_OFF}
        if primary.pairing == "boot":
            given["pairing"] = primary.pairing  # no record of the seat was paired so: the floor is that of the run
        elif manifest.noise.source != "assumed":
            given["a_a_half_width"] = manifest.noise.a_a_half_width
        given["texts"] = "equal" if "speculative_config" in manifest.arguments else manifest.noise.texts
        if manifest.away:
            given["short"] = "unresolved"
        if request.version > 1:
            given["secondary"] = list(primary.secondary)
        given |= {"require": "not-slower"} if isinstance(order, GateOrder) else {"alone": "discounted"}
    return given | request.parameters
