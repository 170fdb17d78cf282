"""The record of a boot as it starts, and what label several boots have together."""

from __future__ import annotations

import secrets
from typing import Any

from runner.clock import now
from runner.model.boot import BootRecord, Label
from runner.model.report import WEAKEST_FIRST


def new_record(planned: str, *, label: Label, pid: int, **known: Any) -> BootRecord:
    """A running boot of the planned boot ``planned`` under an id of its own; what is not ``known`` is still empty."""
    blank: dict[str, Any] = {
        "engine": {},
        "started_at": now(),
        "ready_ms": 0,
        "ranks": (),
        "requested": {},
        "resolved": {},
        "kv_tokens": 0,
        "canary": False,
        "ended": "running",
    }
    named = {"id": f"{planned}-{secrets.token_hex(4)}", "planned": planned, "label": label, "pid": pid}
    return BootRecord.model_validate(blank | known | named)


SIMULATION = "dsv4-carve"
"""What the project's own toy engine calls its distribution."""


def label_fault(boot: BootRecord) -> str:
    """Why what answered in a boot cannot bear its label; empty where nothing speaks against it.

    The toy says whose it is, and only a device has a UUID: a label that was edited with everything that repeats it is
    still not that of what the boot recorded.
    """
    if not boot.engine:
        return ""
    simulated = boot.engine.get("name") == SIMULATION
    if simulated != (boot.label == "simulated"):
        return f"{boot.engine.get('name', 'an engine without a name')} answered, which is labelled {boot.label}"
    for rank in boot.ranks:
        if boot.label in ("cpu", "real") and bool(rank.devices) != (boot.label == "real"):
            return f"rank {rank.rank} on {', '.join(rank.devices) or 'no device'}, which is labelled {boot.label}"
    return ""


def label_of(boots: tuple[BootRecord, ...]) -> Label:
    """The weakest label of the boots that said what they are; ``none`` where no engine answered."""
    seen = {boot.label for boot in boots if boot.engine}
    return next((label for label in WEAKEST_FIRST if label in seen), "none")
