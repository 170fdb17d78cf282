"""Readings without an engine: kernel parity and the pack's census. The desk's own answer is the evidence."""

from __future__ import annotations

import time

from pydantic import JsonValue

from recipe.pack import inspect
from runner.clock import now
from runner.model.evidence import Evidence
from runner.paths import source_root
from serve.adapters.packs import pack_folder
from serve.client.context import WindowContext

_SEEDS = 1 << 32


def parity(context: WindowContext) -> Evidence:
    """Arguments as the desk's parity job takes them; its seed is drawn. Facts: ``cases``."""
    opened = time.monotonic_ns()
    seed = context.draw.integer(f"{context.window.id}/seed", _SEEDS)
    (answer,) = context.boot.call("parity", {**context.window.arguments, "seed": seed})
    return _evidence(context, opened, {"cases": answer["cases"]}, {"seed": seed})


def pack(context: WindowContext) -> Evidence:
    """No arguments. Facts: ``header_digest``, ``payload_digest`` and ``faults`` of the served pack."""
    opened = time.monotonic_ns()
    found, faults = inspect(pack_folder(context.manifest, source_root() / context.manifest.pack))
    facts: dict[str, JsonValue] = {
        "header_digest": found.header_digest(),
        "payload_digest": found.payload_digest(),
        "faults": [str(fault) for fault in faults],
    }
    return _evidence(context, opened, facts, {})


def _evidence(
    context: WindowContext, opened: int, facts: dict[str, JsonValue], material: dict[str, JsonValue]
) -> Evidence:
    return Evidence(
        window=context.window.id,
        boot=context.boot.record.id,
        instrument=context.window.instrument,
        variant=context.variant,
        opened_at=now(),
        opened_ns=opened,
        closed_ns=time.monotonic_ns(),
        material=material,
        facts=facts,
    )
