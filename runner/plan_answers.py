"""Windows of the gates about memory, first tokens, sane text, scores and images."""

from __future__ import annotations

from pydantic import JsonValue

from runner.model.order import GateRequest
from runner.plan_layout import CANDIDATE_ONLY, FORCING, SHARED, WIDE, Layout, Made, amount, both_arms


def memory(layout: Layout, request: GateRequest) -> Made:
    """Read where the candidate serves alone: libraries of both arms would be held twice."""
    arm, boot = ("candidate", CANDIDATE_ONLY) if layout.compares else ("incumbent", SHARED[0])
    device: dict[str, JsonValue] = {
        name: amount(request, name, 0) for name in ("processors", "groups") if name in request.windows
    }
    window = layout.window("memory", boot, "memory@1", arm, device, seconds=1)
    return Made((window.model_copy(update={"expects": (), "control": True}),))  # nothing runs while memory is read


def ttft(layout: Layout, request: GateRequest) -> Made:
    """Rounds in one boot, the arms by turns first; each round has prompts of its own, the same for both arms."""
    common: dict[str, JsonValue] = {
        "texts": amount(request, "texts", 3),
        "prompt_tokens": amount(request, "prompt_tokens", min(1024, layout.manifest.max_model_len - 64)),
        "languages": request.windows.get("languages", ["en", "ja", "code"]),
    }
    seconds = amount(request, "window_seconds", 6)
    windows = []
    for number in range(1, amount(request, "rounds", 4) + 1):
        arguments = common | {"round": number, "material": f"ttft-{number}"}
        for arm in layout.arms if number % 2 else layout.arms[::-1]:
            name = f"ttft-{number}-{arm}"
            windows.append(
                layout.window(
                    name, SHARED[1], "ttft@1", arm, arguments, seconds=seconds, control=not layout.takes(WIDE)
                )
            )
    return Made(tuple(windows))


def sanity(layout: Layout, request: GateRequest) -> Made:
    """The same free-running texts in both arms."""
    arguments: dict[str, JsonValue] = {
        "texts": amount(request, "texts", 6),
        "tokens": amount(request, "tokens", 96),
        "prompt_tokens": amount(request, "prompt_tokens", 48),
        "languages": ["en", "ja", "code"],
    }
    return Made(both_arms(layout, "sanity", SHARED[0], arguments, amount(request, "window_seconds", 8)))


def score(layout: Layout, request: GateRequest) -> Made:
    """The same items in both arms, forced token by token."""
    names = {"items": 24, "choices": 4, "prompt_tokens": 48, "tokens": 16, "rows": 4}
    arguments: dict[str, JsonValue] = {name: amount(request, name, default) for name, default in names.items()}
    arguments["languages"] = request.windows.get("languages", ["en", "ja", "code"])
    return Made(both_arms(layout, "score", FORCING, arguments, amount(request, "window_seconds", 12)))


def vision(layout: Layout, request: GateRequest) -> Made:
    """The same cards in both arms."""
    names = {"cards": 8, "digits": 3}
    arguments: dict[str, JsonValue] = {name: amount(request, name, default) for name, default in names.items()}
    return Made(both_arms(layout, "vision", SHARED[0], arguments, amount(request, "window_seconds", 20)))


def agreement(layout: Layout, request: GateRequest) -> Made:
    """One window for each record of another engine: ``records`` maps its file to the digest that is sealed."""
    records = request.windows.get("records")
    if not isinstance(records, dict):
        return Made()  # a gate without a window is refused
    seconds = amount(request, "window_seconds", 20)
    windows = []
    for number, (record, digest) in enumerate(sorted(records.items()), 1):
        arguments: dict[str, JsonValue] = {"record": record, "digest": digest}
        name = f"agreement-{number}"
        windows.append(layout.window(name, SHARED[0], "agreement@1", "incumbent", arguments, seconds=seconds))
    return Made(tuple(windows))
