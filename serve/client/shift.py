"""Deliberate changes on one rank at a time, with the same forced documents before, again (the floor) and after each.

The exchange ids say which: ``before/``, ``repeat/`` and ``rank0/``, ``rank1/`` ... before the document's id.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from runner.material import perturbed
from runner.model.evidence import Evidence
from serve.adapters.reference import predicted_changes
from serve.client.capture import Capture, record
from serve.client.context import WindowContext
from serve.client.forced import draw_documents, force_batches
from serve.client.texts import listed

Change = Callable[[Capture, int], None]
_DOCUMENTS, _TOKENS = 4, 64


def watermark(context: WindowContext) -> Evidence:
    """Argument ``variant``: the deliberately wrong build that each rank in turn is switched to."""
    wrong = context.text("variant")
    return _shift(
        context,
        change=lambda capture, rank: capture.switch(wrong, [rank]),
        undo=lambda capture, rank: capture.switch(context.variant, [rank]),
    )


def knock_out_zero(context: WindowContext) -> Evidence:
    """Argument ``variant``: the candidate's name, whose library here writes zeros; the base is the incumbent."""
    knocked_out = context.text("variant")

    def undo(capture: Capture, rank: int) -> None:
        capture.switch("incumbent", [rank])

    return _shift(
        context,
        change=lambda capture, rank: capture.switch(knocked_out, [rank]),
        undo=undo,
        prepare=lambda capture: capture.switch("incumbent"),
    )


def perturbation(context: WindowContext) -> Evidence:
    """One expert's scale on one rank by a drawn factor; layer, expert, projection and factor come from the sealed seed.

    The factor lies in 0.25 .. 0.75: far from 1, so that every rank's change stands clear of the floor. A reference
    forward that never saw the engine predicts what each change does to each logprob (facts ``predicted``), unless
    the argument ``predicted`` is false: random experts of a large model's size fit into no reference.
    """
    layers = sorted({row.layer for rank in context.boot.counters() for row in rank.witness if _routed(row.op)})
    simulated = context.boot.record.label == "simulated"
    pack = None if simulated else context.pack
    experts = context.integer("experts", 8) if pack is None else _routed_experts(pack)

    def chosen(rank: int) -> dict[str, Any]:
        label = f"{context.window.id}/perturb/{rank}"
        return {
            "rank": rank,
            "layer": context.draw.choice(f"{label}/layer", layers),
            "expert": context.draw.integer(f"{label}/expert", experts),
        } | perturbed(context.draw, context.window.id, rank)

    evidence = _shift(
        context,
        change=lambda capture, rank: _ignore(capture.call("perturb", chosen(rank))),
        undo=lambda capture, rank: _ignore(capture.call("unperturb", {})),
    )
    if pack is None or context.window.arguments.get("predicted") is False:
        return evidence  # a simulated engine serves no pack that a reference could read
    ranks = range(len(context.boot.record.ranks))
    predicted = predicted_changes(
        pack,
        {identifier: text["tokens"] for identifier, text in _texts(evidence).items()},
        [{**chosen(rank), "ranks": len(ranks)} for rank in ranks],
    )
    prediction: dict[str, JsonValue] = {
        str(rank): [f"{change:.7g}" for change in changes] for rank, changes in zip(ranks, predicted, strict=True)
    }
    return evidence.model_copy(update={"facts": {**evidence.facts, "predicted": prediction}})


def _routed_experts(pack: Path) -> int:
    """How many experts a routed layer of the pack has, by its own configuration."""
    return int(json.loads((pack / "config.json").read_text(encoding="utf-8"))["n_routed_experts"])


def _texts(evidence: Evidence) -> dict[str, Any]:
    texts = evidence.material["texts"]
    assert isinstance(texts, dict), "the driver itself wrote its material"
    return texts


def _routed(op: str) -> bool:
    return op == "routed_experts"


def _ignore(_answer: object) -> None:
    """A witness call's answers are in the record already."""


def _shift(
    context: WindowContext, *, change: Change, undo: Change, prepare: Callable[[Capture], None] | None = None
) -> Evidence:
    documents = draw_documents(context, context.integer("documents", _DOCUMENTS), context.integer("tokens", _TOKENS))
    rows = len(documents)
    ranks = range(len(context.boot.record.ranks))

    def collect(capture: Capture) -> None:
        if prepare:
            prepare(capture)
        force_batches(capture, documents, rows, 0, "before/")
        force_batches(capture, documents, rows, 0, "repeat/")
        for rank in ranks:
            change(capture, rank)
            force_batches(capture, documents, rows, 0, f"rank{rank}/")
            undo(capture, rank)

    return record(context, collect, material={"texts": listed(documents)})
