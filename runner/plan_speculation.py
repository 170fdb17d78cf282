"""Windows of the gates about greedy text with and without speculation."""

from __future__ import annotations

from pydantic import JsonValue

from runner.model.order import GateRequest
from runner.model.plan import PlannedWindow
from runner.plan_layout import SPECULATING, Layout, Made, amount

SPECULATION = "speculation"
"""In an order's ``windows``: the engine's ``speculative_config``, where the seat sets none of its own."""


def acceptance(layout: Layout, request: GateRequest) -> Made:
    """Each language in each arm with speculation, and once without."""
    common: dict[str, JsonValue] = {
        "texts": amount(request, "texts", 4),
        "tokens": amount(request, "tokens", 96),
        "prompt_tokens": amount(request, "prompt_tokens", 64),
    }
    languages = request.windows.get("languages", ["en", "ja", "code"])
    seconds = amount(request, "window_seconds", 8)
    windows: list[PlannedWindow] = []
    for language in languages if isinstance(languages, list) else []:
        own = common | {"language": language, "material": f"acceptance-{language}"}
        plans = [(f"acceptance-{language}-{arm}", SPECULATING, arm, True) for arm in layout.arms]
        plans.append((f"acceptance-{language}-without", layout.unspeculating, "incumbent", False))
        windows += [
            layout.window(name, boot, "acceptance@1", arm, own | {"speculates": speculates}, seconds=seconds)
            for name, boot, arm, speculates in plans
        ]
    return Made(tuple(windows))


def greedy_band(layout: Layout, request: GateRequest) -> Made:
    """The incumbent as reference, again in another batch, the candidate; with speculation both arms once more."""
    common: dict[str, JsonValue] = {
        "texts": amount(request, "texts", 12),
        "tokens": amount(request, "tokens", 64),
        "prompt_tokens": amount(request, "prompt_tokens", 64),
        "top": amount(request, "top", 4),
        "languages": request.windows.get("languages", ["en", "ja", "code"]),
        "material": "greedy-band",
        "rows": 1,
    }
    reference, seconds = "greedy-band-reference", amount(request, "window_seconds", 10)
    against: dict[str, JsonValue] = common | {"reference_window": reference}
    again = against | {"rows": amount(request, "rows", 4), "again": True}
    plain = layout.unspeculating
    plans: list[tuple[str, str, str, dict[str, JsonValue]]] = [
        (reference, plain, "incumbent", common),
        ("greedy-band-again", plain, "incumbent", again),
    ]
    if layout.compares:
        plans.append(("greedy-band-candidate", plain, "candidate", against))
    if layout.speculates:
        plans += [(f"greedy-band-speculating-{arm}", SPECULATING, arm, against) for arm in layout.arms]
    return Made(
        tuple(
            layout.window(name, boot, "greedy-band@1", arm, arguments, seconds=seconds)
            for name, boot, arm, arguments in plans
        )
    )
