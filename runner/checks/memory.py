"""Names that the gate ``memory`` needs a prediction of, and that nobody could predict for this order on this seat."""

from __future__ import annotations

from collections.abc import Iterator

from recipe.mini import expert_pack
from runner.checks.fault import Fault
from runner.gates import memory
from runner.model.order import KernelOrder, RunnableOrder
from runner.model.order.judgement import GateRequest
from runner.model.seat import SeatManifest
from runner.paths import source_root
from serve.graphs import graph_bytes
from serve.prediction import configuration
from serve.scratch import without_rule

DEVICE = ("processors", "groups")
"""What the scratch of kernels follows from: the gate's windows say it."""
_BY_HEADERS = ("weights_bytes", "kv_cache_tokens")


def loaded_with(order: RunnableOrder) -> list[str]:
    """Libraries of the boot in which memory is read."""
    return ["incumbent", *([order.candidate.variant] if isinstance(order, KernelOrder) else [])]


def unpredictable(
    path: tuple[str | int, ...], order: RunnableOrder, request: GateRequest, manifest: SeatManifest
) -> Iterator[Fault]:
    """One fault for each such name. Names are looked at and not sizes: a model without a rule shows at the boot."""
    named = request.parameters.get("predicted", list(memory.Parameters().predicted))
    for name in named if isinstance(named, list) else []:
        if why := _why_not(str(name), order, request, manifest):
            yield Fault((*path, "parameters", "predicted"), f"memory: {name} cannot be predicted here: {why}")


def _why_not(name: str, order: RunnableOrder, request: GateRequest, manifest: SeatManifest) -> str:
    if manifest.adapter == "fake":  # its pack is a name
        return "" if name == "kv_cache_tokens" else f"seat {manifest.name} loads no pack"
    if name in _BY_HEADERS:
        return ""
    if name == "scratch_bytes":
        return _scratch(order, request)
    if name == "graph_bytes":
        return _graphs(order, manifest)
    return f"nothing predicts it; known: {', '.join((*_BY_HEADERS, 'scratch_bytes', 'graph_bytes'))}"


def _scratch(order: RunnableOrder, request: GateRequest) -> str:
    if absent := [name for name in DEVICE if name not in request.windows]:
        return f"the windows do not say the {' and '.join(absent)} of the device"
    unknown = without_rule(loaded_with(order))
    return f"serve/scratch.py has no rule for {unknown}" if unknown else ""


def _graphs(order: RunnableOrder, manifest: SeatManifest) -> str:
    pack = source_root() / manifest.pack
    if manifest.generated is not None:
        made = manifest.generated
        config = expert_pack.configuration(made.layers, made.hidden, made.intermediate, made.experts, made.topk)
    elif (pack / "config.json").is_file():
        config = configuration(pack)
    else:
        return ""  # a pack of another machine: nobody here can say
    held = graph_bytes(config, manifest.arguments, loaded_with(order), measured=manifest.graph_bytes)
    return "" if held else f"seat {manifest.name} captures none, or no rule and no reading of it says what they hold"


__all__ = ["DEVICE", "loaded_with", "unpredictable"]
