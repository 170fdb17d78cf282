"""Small orders as text: for the fake seat, and one for the real engine."""

from __future__ import annotations

from pathlib import Path

HEAD = """schema_version: 1
id: {name}
kind: {kind}
title: A small order
date: "2026-11-30"
people: {{issuer: maintainers, approver: maintainers}}
intent: {{goal: Show one thing., why: A test asks for it., definition_of_done: The test passes.}}
target: {{seat: {seat}, pack: toy}}
"""

CANDIDATE = """candidate:
  variant: {variant}
  max_rows: 64
  strict: {strict}
"""

PRIMARY = """primary: {{metric: decode-rate, margin: {margin}, pairs: {pairs}, languages: [en], tokens: {tokens}}}
"""

SPEED = "  - {name: speed, windows: {prompt_tokens: 16, block_seconds: 1}}\n"
QUALITY = """  - {name: kld, parameters: {bound: 0.001}, windows: {documents: 20, tokens: 12, rows: 4}}
  - {name: ppl-decode, parameters: {margin: 0.005}, windows: {documents: 20, tokens: 12, rows: 4}}
"""


def kernel_order(variant: str = "lna2", *, seat: str = "fake", strict: int = 0, gates: str = QUALITY) -> str:
    """A kernel order without a speed metric: ``resolved``, ``engaged``, ``gates`` and ``restore``."""
    return (
        HEAD.format(name=f"small-{variant}", kind="kernel", seat=seat)
        + CANDIDATE.format(variant=variant, strict=strict)
        + "gates:\n  - name: resolved\n  - name: engaged\n"
        + gates
        + "  - name: restore\n"
    )


def gate_order(*, name: str = "small-gate", pairs: int = 6, margin: str = "0.5", tokens: int = 8) -> str:
    """An A/A order: twenty-four short blocks in two boots."""
    return (
        HEAD.format(name=name, kind="gate", seat="fake")
        + PRIMARY.format(margin=margin, pairs=pairs, tokens=tokens)
        + "gates:\n  - name: resolved\n"
        + SPEED
        + "  - name: restore\n"
    )


def engine_order() -> str:
    """Three short boots of ``cpu-mini`` without a speed metric."""
    head = HEAD.format(name="small-engine", kind="gate", seat="cpu-mini").replace("pack: toy", "pack: recipe/mini/pack")
    return head + (
        "gates:\n  - name: resolved\n"
        "  - {name: finish, windows: {texts: 6, tokens: 128}}\n"
        "  - name: ppl-decode\n"
        "    parameters: {margin: 0.005, perplexity: 300}\n"
        "    windows: {documents: 6, tokens: 48, rows: 6, control_documents: 3}\n"
        "  - name: restore\n"
    )


def write_order(folder: Path, text: str) -> Path:
    """``<folder>/order.yaml``."""
    path = folder / "order.yaml"
    path.write_text(text, encoding="utf-8")
    return path
