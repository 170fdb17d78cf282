"""Windows of the gates about rates beside the order's primary one: without graphs, and with several streams."""

from __future__ import annotations

from pydantic import JsonValue

from runner.model.order import GateRequest
from runner.plan_layout import EAGER, SHARED, Layout, Made, amount


def eager_gap(layout: Layout, request: GateRequest) -> Made:
    """The same blocks of both arms with graphs and without, each in one boot, the arms by turns first."""
    common: dict[str, JsonValue] = {
        "streams": 1,
        "languages": request.windows.get("languages", ["en"]),
        "tokens": amount(request, "tokens", 128),
        "prompt_tokens": amount(request, "prompt_tokens", 64),
    }
    seconds, windows = amount(request, "block_seconds", 3), []
    for engine, boot in (("graphs", SHARED[1]), ("eager", EAGER)):
        for number in range(1, amount(request, "rounds", 3) + 1):
            arguments = common | {"engine": engine, "round": number, "material": f"eager-gap-{number}"}
            for arm in layout.arms if number % 2 else layout.arms[::-1]:
                name = f"eager-gap-{engine}-{number}-{arm}"
                windows.append(layout.window(name, boot, "speed@1", arm, arguments, seconds=seconds))
    return Made(tuple(windows))


def four_streams(layout: Layout, request: GateRequest) -> Made:
    """Rounds of both arms for each language, half of them in either shared boot, the arms by turns first."""
    languages = request.windows.get("languages", ["en", "ja", "code"])
    rounds, windows = amount(request, "rounds", 6), []
    common: dict[str, JsonValue] = {
        "streams": 4,
        "tokens": amount(request, "tokens", 128),
        "prompt_tokens": amount(request, "prompt_tokens", 64),
    }
    seconds = amount(request, "block_seconds", 3)
    for language in languages if isinstance(languages, list) else []:
        for number in range(1, rounds + 1):
            own: dict[str, JsonValue] = {"language": language, "languages": [language], "round": number}
            arguments = common | own | {"material": f"four-streams-{language}-{number}"}
            boot = SHARED[(number - 1) * len(SHARED) // rounds]
            for arm in layout.arms if number % 2 else layout.arms[::-1]:
                name = f"four-streams-{language}-{number}-{arm}"
                windows.append(layout.window(name, boot, "speed@1", arm, arguments, seconds=seconds))
    return Made(tuple(windows))
