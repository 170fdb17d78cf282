"""The boot that strict had to refuse: its end is the evidence."""

from __future__ import annotations

import time

from runner.clock import now
from runner.model.boot import BootRecord
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from serve.client.capture import Capture, connect, record
from serve.client.context import WindowContext
from serve.client.texts import LANGUAGES, Texts, listed


def refused(window: PlannedWindow, boot: BootRecord, variant: str) -> Evidence:
    """Evidence of a boot that never came up: how it ended and the engine's own words."""
    at_ns = time.monotonic_ns()
    return Evidence(
        window=window.id,
        boot=boot.id,
        instrument=window.instrument,
        variant=variant,
        opened_at=now(),
        opened_ns=at_ns,
        closed_ns=at_ns,
        facts={"ended": boot.ended, "reason": boot.ended_reason},
    )


def knock_out_decline(context: WindowContext) -> Evidence:
    """The boot came up although the library declines every call: one request says whether strict refuses at least that.

    Argument ``tokens``.
    """
    tokens = context.integer("tokens", 16)
    with connect(context) as client:
        prompts = Texts(context, client).documents(1, 8, context.texts("languages", LANGUAGES)[:1])

    def collect(capture: Capture) -> None:
        for text in prompts:
            capture.complete(text.id, prompt=list(text.tokens), max_tokens=tokens, ignore_eos=True)

    return record(context, collect, material={"texts": listed(prompts)}, facts={"ended": "running", "reason": ""})
