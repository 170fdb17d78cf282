"""Windows of the gates that read profiler traces, in a boot of their own so that no other window is profiled."""

from __future__ import annotations

from pydantic import JsonValue

from runner.model.order import GateRequest
from runner.model.plan import PlannedWindow
from runner.model.seat import SeatManifest
from runner.plan_layout import TRACED, Layout, Made, amount

ON_TRACES = ("launches", "rank-skew")
"""Gates that need the engine's profiler."""
LAYER_KERNELS = "layer_kernels"


def has_profiler(manifest: SeatManifest) -> bool:
    """Whether engines of the seat are started with a profiler that writes where the runner looks."""
    return manifest.adapter == "fake" or any("{traces}" in word for word in manifest.command)


def launches(layout: Layout, request: GateRequest) -> Made:
    """One window for each arm."""
    return Made(tuple(_window(layout, request, "launches", arm, "") for arm in layout.arms))


def rank_skew(layout: Layout, request: GateRequest) -> Made:
    """Several runs of each arm, arm after arm and run after run."""
    runs = range(1, amount(request, "runs", 3) + 1)
    return Made(tuple(_window(layout, request, "rank-skew", arm, f"-{run}") for run in runs for arm in layout.arms))


def _window(layout: Layout, request: GateRequest, gate: str, arm: str, suffix: str) -> PlannedWindow:
    """Which kernels run once a layer differs by arm: the order names them under ``layer_kernels`` by arm."""
    arguments: dict[str, JsonValue] = {
        "streams": amount(request, "streams", 1),
        "tokens": amount(request, "tokens", 32),
        "prompt_tokens": amount(request, "prompt_tokens", 32),
        "material": f"{gate}{suffix}",
        LAYER_KERNELS: request.windows.get(LAYER_KERNELS, {}),
        "groups": request.windows.get("groups", {}),
    }
    seconds = amount(request, "window_seconds", 20)
    return layout.window(f"{gate}-{arm}{suffix}", TRACED, f"{gate}@1", arm, arguments, seconds=seconds)
