"""What gates are told to measure: amounts that some window is made of, in numbers that mean something."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import JsonValue

from runner.checks.fault import Fault
from runner.gates.sanity import LANGUAGES
from runner.model.order import KernelOrder, RecipeOrder, RunnableOrder, WorkOrder
from runner.model.order.judgement import GateRequest
from runner.model.plan import PlannedWindow
from runner.model.seat import SeatManifest
from runner.plan import layout_of
from runner.plan_layout import Layout
from runner.plan_speculation import SPECULATION
from runner.plan_windows import MAKERS, ROWS
from runner.stats import DOCUMENTS, MOST_DOCUMENTS, fewest, interval_rank

SCORED = frozenset({"kld", "ppl-prefill", "ppl-decode"})
"""Gates whose unit is a document of so many tokens."""
SCORED_TOKENS = 8
DEFAULT_DOCUMENTS = 24
COVERAGE = "0.95"
"""Of both where an order says nothing."""
RATED = frozenset({"speed", "four-streams", "eager-gap"})
"""Gates that time what comes after the first token."""
RATED_TOKENS = 8
COUNTED = ("documents", "control_documents")
MOST = 1 << 24
"""Of anything else that is measured: tokens, texts, rounds, seconds."""
ANYWHERE = frozenset({SPECULATION})
"""Read from whichever gate names it."""
Path = tuple[str | int, ...]


class _Asked(dict[str, JsonValue]):
    """A gate's ``windows`` that keeps what is looked for in it, each with its default."""

    def __init__(self, given: dict[str, JsonValue]) -> None:
        super().__init__(given)
        self.defaults: dict[str, object] = {}

    def get(self, name: str, default: object = None) -> object:  # type: ignore[override]  # a default of any kind
        self.defaults[name] = default
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.defaults.setdefault(str(name), 0)
        return super().__contains__(name)


def amounts(order: WorkOrder, manifest: SeatManifest | None) -> Iterator[Fault]:
    """Too little for a verdict, too much of anything, and names and values that no window is made of."""
    target = order.target if isinstance(order, RunnableOrder) else None
    layout = layout_of(order, manifest) if isinstance(order, RunnableOrder) and target and manifest else None
    for index, request in enumerate(order.gates):
        path: Path = ("gates", index, "windows")
        yield from _bounds(path, order, request)
        yield from _targets(path, request)
        if layout is not None and request.planned is None and request.name in MAKERS:
            yield from _asked(path, layout, request)


def _bounds(path: Path, order: WorkOrder, request: GateRequest) -> Iterator[Fault]:
    tokens = request.windows.get("tokens")
    if request.name in SCORED and isinstance(tokens, int) and tokens < SCORED_TOKENS:
        message = f"{request.name}: {tokens} tokens of a document are no document, {SCORED_TOKENS} are needed"
        yield Fault((*path, "tokens"), message)
    for name, value in request.windows.items():
        most = MOST_DOCUMENTS if name in COUNTED else MOST
        if isinstance(value, int) and not 0 <= value <= most:
            yield Fault((*path, name), f"{request.name}: {name} lies between 0 and {most}, not at {value}")
    documents = request.windows.get("documents")
    if isinstance(order, KernelOrder | RecipeOrder) and isinstance(documents, int) and documents < DOCUMENTS:
        message = f"{request.name}: {documents} documents cannot decide, {DOCUMENTS} are needed"
        yield Fault((*path, "documents"), message)
    elif isinstance(order, KernelOrder | RecipeOrder) and request.name in SCORED:
        yield from _by_language(path, request)


def _by_language(path: Path, request: GateRequest) -> Iterator[Fault]:
    """Too few documents for every language to decide; or all languages judged together, and so many documents that one
    of them could be ruined inside what the interval leaves out.
    """
    documents, languages = request.windows.get("documents", DEFAULT_DOCUMENTS), request.windows.get("languages")
    count = len(languages) if isinstance(languages, list) and languages else len(LANGUAGES)
    try:
        coverage = float(str(request.parameters.get("coverage", COVERAGE)))
        needed = fewest(coverage)
    except ValueError:
        return  # no number, or none that decides: another check says so
    if not isinstance(documents, int) or not 0 < documents <= MOST_DOCUMENTS:
        return
    if request.version == 1:
        if interval_rank(documents, coverage)[0] > documents // count:
            message = f"{request.name}: version 1 would not see one of {count} languages ruined: ask for version 2"
            yield Fault((*path[:-1], "version"), message)
    elif documents // count < needed:
        message = f"{request.name}: {documents} documents in {count} languages, {count * needed} are needed"
        yield Fault((*path, "documents"), f"{message} for each to decide by itself")


def _targets(path: Path, request: GateRequest) -> Iterator[Fault]:
    """Targets at rows or under routes that no window measures: nothing could be decided about them."""
    targets = request.parameters.get("targets") if request.name == "kernel-speed" else None
    for place, target in enumerate(targets if isinstance(targets, list) else ()):
        for name, usual in (("rows", 0), ("routes", "uniform")):
            measured = request.windows.get(name, [usual] if usual else ROWS)
            wanted = target.get(name, usual) if isinstance(target, dict) else usual
            if isinstance(measured, list) and wanted and wanted not in measured:
                message = f"{request.name}: a target at {name} {wanted}, and windows measure {measured}"
                yield Fault((*path[:-1], "parameters", "targets", place), message)


def _asked(path: Path, layout: Layout, request: GateRequest) -> Iterator[Fault]:
    """Names that the plan does not look for, and values of another kind than it takes: it would take its own."""
    asked = _Asked(request.windows)
    made = MAKERS[request.name](layout, request.model_copy(update={"windows": asked}))
    for name, value in request.windows.items():
        if name in ANYWHERE:
            continue
        if name not in asked.defaults:
            known = ", ".join(sorted(asked.defaults)) or "nothing"
            yield Fault((*path, name), f"no window of {request.name} is made of {name}; it is told of {known}")
        elif wrong := _wrong(name, value, asked.defaults[name]):
            yield Fault((*path, name), f"{request.name}: {name} is {wrong}, not {value!r}")
    if made.own:
        yield from _room(path, layout, request.name, made.own[0])


def _room(path: Path, layout: Layout, name: str, window: PlannedWindow) -> Iterator[Fault]:
    """What one of a gate's windows asks of the engine, and what it can hold and can tell."""
    manifest = layout.manifest
    where: Path = ("primary",) if name == "speed" and layout.primary is not None else path
    tokens, prompt = (_count(window, field) for field in ("tokens", "prompt_tokens"))
    if name in RATED and tokens < RATED_TOKENS:
        message = f"{name}: a rate is read from the tokens after the first, {RATED_TOKENS} at least, not from {tokens}"
        yield Fault((*where, "tokens"), message)
    if tokens + prompt > manifest.max_model_len:
        message = f"{name}: {tokens} tokens after {prompt} of the prompt are more than seat {manifest.name} holds"
        place = (*where, "tokens") if tokens > prompt else (*path, "prompt_tokens")
        yield Fault(place, f"{message} ({manifest.max_model_len})")
    streams, most = _count(window, "streams"), manifest.arguments.get("max_num_seqs")
    if "streams" in window.arguments and streams < 1:
        yield Fault((*where, "streams"), f"{name}: {streams} streams are none")
    elif isinstance(most, int) and streams > most:
        message = (
            f"{name}: seat {manifest.name} runs {most} streams at once (max_num_seqs), {streams} would wait in line"
        )
        yield Fault((*where, "streams"), message)


def _count(window: PlannedWindow, name: str) -> int:
    """Of another kind than a number another check speaks."""
    value = window.arguments.get(name)
    return value if isinstance(value, int) else 0


def _wrong(name: str, value: JsonValue, default: object) -> str:
    """What the value should be, where it is of another kind than its default; empty where it is right."""
    if isinstance(default, int):
        least = min(default, 1)
        right = isinstance(value, int) and not isinstance(value, bool) and (value >= least or value < 0)
        return "" if right else f"a whole number, at least {least}"
    if name == "languages":
        right = (
            isinstance(value, list) and bool(value) and all(value.count(one) == 1 and one in LANGUAGES for one in value)
        )
        return "" if right else f"a list of {', '.join(LANGUAGES)}, each once"
    if name == "routes":
        kinds = ("uniform", "recorded")
        right = isinstance(value, list) and bool(value) and all(value.count(one) == 1 and one in kinds for one in value)
        return "" if right else f"a list of {', '.join(kinds)}, each once"
    if name == "depths":
        right = isinstance(value, list) and _are_counts(value, 0, 100) and len(set(map(str, value))) == len(value)
        return "" if right else "a list of different per cents between 0 and 100"
    if isinstance(default, list):
        return "" if isinstance(value, list) and _are_counts(value, 1, MOST) else "a list of whole numbers from 1"
    if isinstance(default, dict):
        return "" if isinstance(value, dict) else "a mapping"
    return ""


def _are_counts(values: list[JsonValue], least: int, most: int) -> bool:
    numbers = [one for one in values if isinstance(one, int) and not isinstance(one, bool) and least <= one <= most]
    return bool(values) and len(numbers) == len(values)


__all__ = ["amounts"]
