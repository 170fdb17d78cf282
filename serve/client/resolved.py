"""What the live engine says its configuration is, beside what was asked of it."""

from __future__ import annotations

from runner.model.evidence import Evidence
from serve.client.capture import Capture, record
from serve.client.context import WindowContext


def resolved(context: WindowContext) -> Evidence:
    """No arguments; the answers of every rank are kept, so that a rank that differs shows."""

    def collect(capture: Capture) -> None:
        capture.call("resolved", {})
        capture.call("identity", {})

    return record(context, collect, material={}, facts={"requested": dict(context.boot.record.requested)})
