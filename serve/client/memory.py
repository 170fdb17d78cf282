"""What each rank holds beside what the pack's headers and the engine's arguments said it would."""

from __future__ import annotations

from pydantic import JsonValue

from recipe.pack import read_pack
from runner.model.evidence import Evidence
from serve.client.capture import Capture, record
from serve.client.context import WindowContext
from serve.graphs import graph_bytes
from serve.prediction import ScratchFormula, configuration, predict
from serve.scratch import scratch_of


def memory(context: WindowContext) -> Evidence:
    """Nothing is asked of the model: sizes are those that the live engine answers for.

    Arguments ``processors`` and ``groups``, of a GPU alone: what scratch follows from (:mod:`serve.scratch`). Without
    them no scratch is predicted.
    """

    def collect(capture: Capture) -> None:
        capture.call("resolved", {})

    return record(context, collect, material={}, facts={"predicted": predicted(context)})


def predicted(context: WindowContext) -> list[JsonValue]:
    """Of each rank; sizes that the prediction knows nothing of are left out, so that a gate which needs them says so.

    Raises InputError for a model, type or memory budget that no rule covers.
    """
    arguments = {"block_size": context.manifest.kv_block_tokens} | context.boot.record.requested
    if context.boot.record.label == "simulated":  # no pack is loaded
        return [{"kv_cache_tokens": arguments["kv_cache_tokens"]} for _ in context.boot.record.ranks]
    # Every boot is read back under the incumbent first: a candidate's graphs are the second set.
    captured = {"incumbent", context.variant}
    graphs = graph_bytes(configuration(context.pack), arguments, captured, measured=context.manifest.graph_bytes)
    found: list[JsonValue] = []
    for rank in predict(read_pack(context.pack), arguments, _scratch(context)):
        sizes = {"scratch_bytes": rank.scratch_bytes, "graph_bytes": graphs or 0}
        known: dict[str, JsonValue] = {name: size for name, size in sizes.items() if size}
        found.append({"weights_bytes": rank.weights_bytes, "kv_cache_tokens": rank.kv_tokens, **known})
    return found


def _scratch(context: WindowContext) -> ScratchFormula | None:
    """Of the libraries that the ranks loaded, where the window says what device they are on."""
    if "processors" not in context.window.arguments:
        return None
    libraries = context.boot.record.ranks[0].libraries
    return scratch_of(libraries, processors=context.integer("processors"), groups=context.integer("groups"))


__all__ = ["memory"]
