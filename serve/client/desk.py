"""What the desk finds out without an engine: a variant's parity and the pack's closure."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from pydantic import JsonValue

from recipe.pack import inspect
from runner.errors import SeatError
from runner.model.evidence import Evidence
from runner.paths import source_root
from serve.adapters.packs import pack_folder
from serve.client.context import WindowContext


def parity(context: WindowContext) -> Evidence:
    """Arguments ``variant`` and whatever else the desk's job takes. Raises SeatError where the job cannot run."""
    opened = time.monotonic_ns()
    arguments = {name: value for name, value in context.window.arguments.items() if name != "material"}
    answer = context.boot.call("parity", arguments)[0]
    if not isinstance(answer, dict) or "cases" not in answer:
        raise SeatError("the desk's parity job gave no cases", where=context.boot.record.id, found=str(answer)[:200])
    return _evidence(context, opened, dict(answer))


def pack(context: WindowContext) -> Evidence:
    """Headers, closure and payload of the pack that the seat serves. Every fault is kept, not only the first."""
    opened = time.monotonic_ns()
    found, faults = inspect(pack_folder(context.manifest, source_root() / context.manifest.pack))
    return _evidence(
        context,
        opened,
        {
            "header_digest": found.header_digest(),
            "payload_digest": found.payload_digest(),
            "faults": [f"{fault.fault.value}: {fault.what}: {fault.where}: {fault.found}" for fault in faults],
        },
    )


def _evidence(context: WindowContext, opened_ns: int, facts: dict[str, JsonValue]) -> Evidence:
    return Evidence(
        window=context.window.id,
        boot=context.boot.record.id,
        instrument=context.window.instrument,
        variant=context.variant,
        opened_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        opened_ns=opened_ns,
        closed_ns=time.monotonic_ns(),
        facts=facts,
    )
