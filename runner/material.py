"""Whether what a window was asked is what the sealed seed and plan draw: the plan's digest keys every draw, so a plan
that was changed afterwards asks for other documents, needles, perturbations and desk jobs than those in its evidence.

Nothing is left out of what the plan asks for. Checked are the numbers of the drawn documents, not their text: which
token ids a document has, the engine's tokenizer says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recipe.mini.needles import DIGITS
from runner.draw import Draw
from runner.errors import TrustError
from runner.model.evidence import Evidence
from runner.model.plan import Plan, PlannedWindow

DRAWN = "drawn"
"""Key of ``Evidence.material``: language to ``{"of": documents in the pool, "documents": their numbers in order}``."""

PROJECTIONS = ("gate", "up", "down")


def needle_answer(draw: Draw, label: str, trial: str) -> str:
    """The digits hidden in one trial of a needle window."""
    return str(draw.integer(f"{label}/needle/{trial}", 10**DIGITS)).zfill(DIGITS)


def score_answer(draw: Draw, label: str, item: str, choices: int) -> int:
    """The place of an item's own continuation among its choices."""
    return draw.integer(f"{label}/score/{item}", choices)


def card_answer(draw: Draw, label: str, card: str, digits: int) -> str:
    """The number on one image card."""
    return str(draw.integer(f"{label}/card/{card}", 10**digits)).zfill(digits)


DESK_JOBS = ("parity", "kernel-speed", "pressure", "sanitizer")
"""Instruments of one call each, whose tensors come from a seed of the window's own."""


def desk_seed(draw: Draw, window: str) -> int:
    """Of one desk job, below 2**31."""
    return draw.integer(f"{window}/seed", 1 << 31)


def perturbed(draw: Draw, window: str, rank: int) -> dict[str, Any]:
    """Projection and factor of one rank's perturbation; the factor lies in 0.25 .. 0.75."""
    label = f"{window}/perturb/{rank}"
    return {
        "projection": draw.choice(f"{label}/projection", PROJECTIONS),
        "factor": (25 + draw.integer(f"{label}/factor", 51)) / 100,
    }


def check_material(evidence: Evidence, plan: Plan, draw: Draw, where: str) -> None:
    """Raises TrustError where the evidence is of another plan or of no window of this one, or documents, needles,
    perturbations or a desk job's seed are not those drawn.
    """
    if evidence.plan is not None and evidence.plan != draw.plan:
        raise TrustError("evidence of another plan", where=where, expected=draw.plan, found=evidence.plan)
    window = next((window for window in plan.windows if window.id == evidence.window), None)
    if window is None:
        raise TrustError("evidence of a window that is not in the plan", where=where, found=evidence.window)
    try:
        strangers = list(_strangers(evidence, window, draw))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise TrustError("material of another form than is drawn", where=where, found=repr(error)) from error
    for what in strangers:
        raise TrustError(
            "the prompts do not follow from the seed and the plan",
            where=where,
            expected="what the seed and the plan draw",
            found=what,
            next_step="measure again: a plan cannot be changed after its run",
        )


def planned_material(window: PlannedWindow) -> dict[str, dict[str, str]]:
    """Language by name of each text, needle, item or card that the window's arguments ask for, by their kind.

    Kinds of which the arguments do not say it all are left out. Clients take languages in turn, so that a text that was
    left out, or is called another language's, shows.
    """
    arguments, planned = window.arguments, dict[str, dict[str, str]]()
    if isinstance(cards := arguments.get("cards"), int):
        planned["cards"] = {f"c{number + 1}": "" for number in range(cards)}
    told = arguments.get("languages", [arguments["language"]] if "language" in arguments else None)
    if not isinstance(told, list) or not told:
        return planned
    names = [str(language) for language in told]
    if isinstance(texts := arguments.get("documents", arguments.get("texts")), int):
        planned["texts"] = {f"d{number + 1:03d}-{language}": language for number, language in _in_turn(names, texts)}
    elif isinstance(streams := arguments.get("streams"), int) and window.instrument.partition("@")[0] == "speed":
        planned["texts"] = {f"{language}-{stream + 1}": language for language in names for stream in range(streams)}
    if isinstance(items := arguments.get("items"), int):
        planned["items"] = {f"i{number + 1:03d}": language for number, language in _in_turn(names, items)}
    if isinstance(depths := arguments.get("depths"), list):
        planned["needles"] = {f"{language}-{depth:02d}": language for language in names for depth in depths}
    return planned


def _in_turn(languages: list[str], count: int) -> Iterator[tuple[int, str]]:
    return ((number, languages[number % len(languages)]) for number in range(count))


def _strangers(evidence: Evidence, window: PlannedWindow, draw: Draw) -> Iterator[str]:
    material: dict[str, Any] = evidence.material
    label = str(window.arguments.get("material", window.id))
    drawn = material.get(DRAWN, {})
    if not drawn and material.keys() & {"texts", "needles", "prompts", "items"}:
        yield "texts without the numbers of their documents"
    for kind, planned in planned_material(window).items():
        if kind not in material:
            continue
        found = {name: each.get("language", "") for name, each in material[kind].items()}
        if found != planned:
            odd = sorted(found.items() ^ planned.items())
            yield f"other {kind} than planned, {odd[0][0]} ({odd[0][1]}) ..."
    for language, part in drawn.items():
        documents = part["documents"]
        if documents != draw.permutation(f"{label}/{language}", part["of"])[: len(documents)]:
            yield f"{language} documents {documents[:3]} ..."
    for trial, needle in material.get("needles", {}).items():
        if needle["answer"] != needle_answer(draw, label, trial):
            yield f"needle {needle['answer']} in trial {trial}"
    for name, item in material.get("items", {}).items():
        if item["answer"] != score_answer(draw, label, name, len(item["choices"])):
            yield f"place {item['answer']} in item {name}"
    for name, card in material.get("cards", {}).items():
        if card["answer"] != card_answer(draw, label, name, len(card["answer"])):
            yield f"number {card['answer']} on card {name}"
    if window.instrument.partition("@")[0] in DESK_JOBS:
        asked = [call.arguments for call in evidence.calls]
        if asked != [{**window.arguments, "seed": desk_seed(draw, window.id)}]:
            yield f"the desk's job {asked}"
    for call in evidence.calls:
        if call.method == "perturb":
            chosen = perturbed(draw, window.id, int(str(call.arguments["rank"])))
            if any(call.arguments[name] != value for name, value in chosen.items()):
                yield f"perturbation {call.arguments}"


__all__ = [
    "DRAWN",
    "PROJECTIONS",
    "card_answer",
    "check_material",
    "desk_seed",
    "needle_answer",
    "perturbed",
    "score_answer",
]
