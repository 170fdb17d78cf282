"""Which windows each gate reads. A gate that is not named in :data:`MAKERS` cannot be planned."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import JsonValue

from runner.model.evidence import EVERY_POSITION
from runner.model.order import GateRequest
from runner.model.plan import Expectation, PlannedWindow
from runner.plan_answers import agreement, memory, sanity, score, ttft, vision
from runner.plan_layout import (
    CANDIDATE_ONLY,
    DESK,
    FORCING,
    INCUMBENT_ONLY,
    KNOCK_OUTS,
    ONE_ROW,
    PAIR_BOOT,
    SHARED,
    WIDE,
    Layout,
    Made,
    amount,
    both_arms,
)
from runner.plan_speculation import acceptance, greedy_band
from runner.plan_speeds import eager_gap, four_streams
from runner.plan_traces import ON_TRACES, launches, rank_skew

QUAD = 4
"""Blocks of one pair."""
PARITY: dict[str, JsonValue] = {"rows": [1], "threads": 2, "window_seconds": 20}
"""What an order may tell the desk, by example; library and variant are not its to say."""

Maker = Callable[[Layout, GateRequest], Made]


def _speed(layout: Layout, request: GateRequest) -> Made:
    primary = layout.primary
    pairs = primary.pairs if primary else amount(request, "pairs", 6)
    languages: list[JsonValue] = list(primary.languages) if primary else ["en", "ja", "code"]
    common: dict[str, JsonValue] = {
        "streams": primary.streams if primary else 1,
        "languages": languages,
        "tokens": primary.tokens if primary else amount(request, "tokens", 128),
        "prompt_tokens": amount(request, "prompt_tokens", 64),
    }
    seconds = amount(request, "block_seconds", 3)
    windows = []
    for pair in range(pairs):
        shared = SHARED[pair * len(SHARED) // pairs]
        for block in range(QUAD):
            boot = f"{PAIR_BOOT}{pair + 1}-{block + 1}" if primary and primary.pairing == "boot" else shared
            arguments = common | {"quad": f"q{pair + 1}", "block": block, "material": _prompts(pair, block)}
            name = f"q{pair + 1}-b{block + 1}"
            windows.append(layout.window(name, boot, "speed@1", "drawn", arguments, seconds=seconds))
    if layout.candidate:
        for block in range(QUAD):
            arguments = common | {"material": _prompts(0, block)}
            name = f"alone-b{block + 1}"
            windows.append(layout.window(name, INCUMBENT_ONLY, "speed@1", "incumbent", arguments, seconds=seconds))
    return Made(tuple(windows))


def _prompts(pair: int, block: int) -> str:
    """Material of one block: each half of a quad has its own, so that no arm is asked the same twice in a boot."""
    return f"speed-q{pair + 1}-{'ab'[block // 2]}"


def _documents(request: GateRequest, tokens: int) -> dict[str, JsonValue]:
    return {
        "documents": amount(request, "documents", 24),
        "tokens": amount(request, "tokens", tokens),
        "languages": request.windows.get("languages", ["en", "ja", "code"]),
    }


def _ppl_prefill(layout: Layout, request: GateRequest) -> Made:
    arguments = _documents(request, 256)
    seconds = amount(request, "window_seconds", 4)
    return Made(both_arms(layout, "ppl-prefill", SHARED[0], arguments, seconds, rows=WIDE))


def _ppl_decode(layout: Layout, request: GateRequest) -> Made:
    documents, seconds = _documents(request, 128), amount(request, "window_seconds", 6)
    both = both_arms(layout, "ppl-decode", FORCING, documents | {"rows": amount(request, "rows", 8)}, seconds)
    count = amount(request, "control_documents", 0)
    return Made((*both, _one_row(layout, documents | {"documents": count}, seconds)) if count else both)


def _one_row(layout: Layout, documents: dict[str, JsonValue], seconds: int) -> PlannedWindow:
    """The first of the forced documents, read as prompts by the incumbent in an engine whose steps hold one row."""
    arguments = documents | {"material": "ppl-decode"}
    window = layout.window("ppl-decode-one-row", ONE_ROW, "ppl-prefill@1", "incumbent", arguments, seconds=seconds)
    return window.model_copy(
        update={"expects": (Expectation(variant=layout.incumbent, rows_min=1, rows_max=1, operator=layout.operator),)}
    )


def _kld(layout: Layout, request: GateRequest) -> Made:
    rows = amount(request, "rows", 8)
    arguments = _documents(request, 96) | {
        "rows": rows,
        "top": amount(request, "top", 64),
        "drawn": amount(request, "drawn", 1),
        EVERY_POSITION: True,
    }
    seconds = amount(request, "window_seconds", 6)
    both = both_arms(layout, "kld", FORCING, arguments, seconds)
    again = arguments | {"rows": max(1, rows // 2), "material": "kld", "reference_window": "kld-incumbent"}
    return Made((*both, layout.window("kld-again", FORCING, "kld@1", "incumbent", again, seconds=seconds)))


def _needle(layout: Layout, request: GateRequest) -> Made:
    arguments: dict[str, JsonValue] = {
        "depths": request.windows.get("depths", [10, 30, 50, 70, 90]),
        "prompt_tokens": amount(request, "prompt_tokens", min(1792, layout.manifest.max_model_len - 256)),
        "languages": request.windows.get("languages", ["en", "ja", "code"]),
    }
    return Made(both_arms(layout, "needle", SHARED[1], arguments, amount(request, "window_seconds", 10)))


def _finish(layout: Layout, request: GateRequest) -> Made:
    arm, boot = ("candidate", CANDIDATE_ONLY) if layout.compares else ("incumbent", SHARED[0])
    arguments: dict[str, JsonValue] = {
        "texts": amount(request, "texts", 6),
        "tokens": amount(request, "tokens", 256),
        "languages": request.windows.get("languages", ["en", "ja", "code"]),
    }
    seconds = amount(request, "window_seconds", 5)
    return Made((layout.window("finish", boot, "finish@1", arm, arguments, seconds=seconds),))


def _kv_window(layout: Layout, request: GateRequest) -> Made:
    arm, boot = ("candidate", CANDIDATE_ONLY) if layout.compares else ("incumbent", SHARED[0])
    seconds = amount(request, "window_seconds", 8)
    return Made((layout.window("kv-window", boot, "kv-window@1", arm, {}, seconds=seconds),))


def _watermark(layout: Layout, request: GateRequest) -> Made:
    arguments: dict[str, JsonValue] = {"variant": layout.watermark, "tokens": amount(request, "tokens", 64)}
    seconds = amount(request, "window_seconds", 3)
    return Made((layout.window("watermark", FORCING, "watermark@1", "candidate", arguments, seconds=seconds),))


def _perturbation(layout: Layout, request: GateRequest) -> Made:
    arguments: dict[str, JsonValue] = {"tokens": amount(request, "tokens", 64)}
    if layout.manifest.generated is not None:
        arguments["predicted"] = False
    seconds = amount(request, "window_seconds", 6)
    return Made((layout.window("perturbation", FORCING, "perturbation@1", "candidate", arguments, seconds=seconds),))


def _knock_out(layout: Layout, request: GateRequest) -> Made:
    arguments: dict[str, JsonValue] = {
        "variant": layout.variants["candidate"],
        "tokens": amount(request, "tokens", 64),
    }
    seconds = amount(request, "window_seconds", 3)
    # The library that declines is switched on from the start; the one that writes zeros is compared with the incumbent.
    arms = zip(KNOCK_OUTS, ("candidate", "none"), strict=True)
    return Made(
        tuple(
            layout.window(name, name, f"{name}@1", arm, arguments, seconds=seconds, control=True) for name, arm in arms
        )
    )


def _parity(layout: Layout, request: GateRequest) -> Made:
    arguments: dict[str, JsonValue] = {"variant": layout.variants["candidate"]}
    arguments |= {name: request.windows.get(name, usual) for name, usual in PARITY.items() if name in request.windows}
    seconds = amount(request, "window_seconds", 20)
    return Made((layout.window("parity", DESK, "parity@1", "none", arguments, seconds=seconds),))


ROWS: list[JsonValue] = [1, 2, 4, 8, 16]
"""At which kernels are timed where an order says nothing."""


def _kernel_speed(layout: Layout, request: GateRequest) -> Made:
    """One window, and so one process, for each incumbent version."""
    arguments: dict[str, JsonValue] = {"variant": layout.variants["candidate"], "cold": amount(request, "cold", 24)}
    arguments |= {"warm": amount(request, "warm", 12), "rows": request.windows.get("rows", ROWS)}
    arguments |= {"bits": request.parameters.get("bits", [])}
    routes = request.windows.get("routes", ["uniform"])
    arguments |= {"routes": routes} if routes != ["uniform"] else {}
    versions, seconds = request.parameters.get("versions", []), amount(request, "window_seconds", 60)
    if not isinstance(versions, list):
        return Made()  # the gate's own parameters say what is wrong with that
    return Made(
        tuple(
            layout.window(
                f"kernel-speed-{version}",
                DESK,
                "kernel-speed@1",
                "none",
                arguments | {"version": version},
                seconds=seconds,
            )
            for version in versions
        )
    )


def _pressure(layout: Layout, request: GateRequest) -> Made:
    arguments: dict[str, JsonValue] = {
        "variant": layout.variants["candidate"],
        "replays": amount(request, "replays", 24),
    }
    arguments |= {name: request.parameters.get(name, []) for name in ("bits", "rows")}
    seconds = amount(request, "window_seconds", 30)
    return Made((layout.window("pressure", DESK, "pressure@1", "none", arguments, seconds=seconds),))


def _sanitizer(layout: Layout, request: GateRequest) -> Made:
    arguments: dict[str, JsonValue] = {"variant": layout.variants["candidate"]}
    seconds = amount(request, "window_seconds", 60)
    return Made((layout.window("sanitizer", DESK, "sanitizer@1", "none", arguments, seconds=seconds),))


def _pack(layout: Layout, request: GateRequest) -> Made:
    arguments: dict[str, JsonValue] = {"pack": layout.target.pack}
    seconds = amount(request, "window_seconds", 2)
    return Made((layout.window("pack", DESK, "pack@1", "none", arguments, seconds=seconds),))


def _claims(layout: Layout, request: GateRequest) -> Made:
    facts: list[JsonValue] = [fact.model_dump(mode="json", exclude_defaults=True) for fact in layout.claims]
    arguments: dict[str, JsonValue] = {"claims": [fact.id for fact in layout.claims], "facts": facts}
    seconds = amount(request, "window_seconds", 2)
    return Made((layout.window("claims", DESK, "claims@1", "none", arguments, seconds=seconds),))


def _product(layout: Layout, request: GateRequest) -> Made:
    seconds = amount(request, "window_seconds", 5)
    return Made((layout.window("product", DESK, "product@1", "none", {}, seconds=seconds),))


def _sensitivity(layout: Layout, request: GateRequest) -> Made:
    seconds = amount(request, "window_seconds", 45)
    arguments = _documents(request, 128)
    return Made((layout.window("sensitivity", DESK, "sensitivity@1", "none", arguments, seconds=seconds),))


def _restore(layout: Layout, request: GateRequest) -> Made:
    return Made((layout.window("restore", DESK, "restore@1", "none", {}, seconds=1),))


def _engaged(layout: Layout, request: GateRequest) -> Made:
    arguments: dict[str, JsonValue] = {
        "prompt_tokens": amount(request, "prompt_tokens", 96),
        "tokens": amount(request, "tokens", 16),
    }
    window = layout.window("engaged", CANDIDATE_ONLY, "engaged@1", "candidate", arguments, seconds=1)
    return Made((window,), reads_every_candidate_window=True)


def _resolved(layout: Layout, request: GateRequest) -> Made:
    return Made(in_every_boot="resolved@1")


MAKERS: dict[str, Maker] = {
    "pack": _pack,
    "product": _product,
    "claims": _claims,
    "sensitivity": _sensitivity,
    "resolved": _resolved,
    "engaged": _engaged,
    "parity": _parity,
    "kernel-speed": _kernel_speed,
    "pressure": _pressure,
    "sanitizer": _sanitizer,
    "speed": _speed,
    "ppl-prefill": _ppl_prefill,
    "ppl-decode": _ppl_decode,
    "kld": _kld,
    "needle": _needle,
    "kv-window": _kv_window,
    "finish": _finish,
    "memory": memory,
    "ttft": ttft,
    "sanity": sanity,
    "score": score,
    "vision": vision,
    "agreement": agreement,
    "acceptance": acceptance,
    "greedy-band": greedy_band,
    "launches": launches,
    "rank-skew": rank_skew,
    "eager-gap": eager_gap,
    "four-streams": four_streams,
    "watermark": _watermark,
    "perturbation": _perturbation,
    "knock-out": _knock_out,
    "restore": _restore,
}
"""By gate name."""

ON_A_GPU = frozenset({"kernel-speed", "pressure", "sanitizer"})
"""Gates about a kernel alone on a GPU desk."""
NEEDS_LIBRARY = (
    frozenset({"engaged", "parity", "watermark", "knock-out", "speed", "eager-gap", "four-streams", *ON_TRACES})
    | ON_A_GPU
)
"""Gates about a native candidate, which a recipe's product is not; ``speed`` and traces need both arms in a boot."""

NEEDS_PRODUCT = frozenset({"product", "sensitivity"})
"""Gates about what a recipe made."""

NEEDS_CANDIDATE = (NEEDS_LIBRARY - {"speed", *ON_TRACES}) | NEEDS_PRODUCT | {"kld", "perturbation"}
"""Gates that say nothing where there is no candidate."""

ON_THE_DESK = frozenset({"parity", "kernel-speed", "pressure", "sanitizer"})
"""Gates that load the candidate outside the engine."""
