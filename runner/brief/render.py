"""Renders a brief. Text of the order stands in fences and code spans that it cannot close or leave."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import StrictUndefined, Template
from jinja2.sandbox import SandboxedEnvironment
from pydantic import JsonValue, ValidationError

from runner.brief.manner import manner_of
from runner.brief.reading import reading
from runner.errors import InputError
from runner.gates.registry import gate
from runner.model.order import GateRequest, OrderFile, RunnableOrder, SurveyOrder, WorkOrder, files_of, load_order
from runner.model.order.contract import Contract
from runner.model.order.text import line_of
from runner.model.seat import SeatManifest
from runner.order_lines import for_a_person
from runner.plan_parameters import judgement_digest, sealed_parameters
from runner.steps.seats import load_manifest
from runner.visible import visible

LANGUAGES = ("en", "ja")
_FOLDER = Path(__file__).parent


def brief_of(path: Path, seat: str = "", language: str = "en") -> str:
    """The brief of an order, in Markdown. Raises InputError for a language, order or seat that is not known."""
    if language not in LANGUAGES:
        raise InputError("no brief in this language", expected=", ".join(LANGUAGES), found=language)
    file = load_order(path)
    order = file.order
    target = None if isinstance(order, SurveyOrder) else getattr(order, "target", None)
    name = seat or (target.seat if target else "")
    return render(file, load_manifest(name) if name else None, language)


def render(file: OrderFile, manifest: SeatManifest | None, language: str) -> str:
    """The brief of an order that was read, on a seat or on none."""
    order = file.order
    return _template().render(
        order=order,
        digest=file.digest,
        judgement=judgement_digest(order),
        manifest=manifest,
        target=None if isinstance(order, SurveyOrder) else getattr(order, "target", None),
        candidate=getattr(order, "candidate", None),
        allowed=files_of(order),
        primary=getattr(order, "primary", None),
        questions=getattr(order, "questions", ()),
        recipe=_recipe(order),
        reading=reading(order),
        contract_lines=_contract_lines(order.contract) if order.contract else (),
        gates=[_gate(order, manifest, request) for request in order.gates if request.planned is None],
        planned=[_planned(request) for request in order.gates if request.planned is not None],
        by_person=for_a_person(order),
        say=_phrases(language),
    )


def fenced(text: object, kind: str = "text") -> str:
    """A code block around ``text`` whose fence is longer than any run of backticks in it."""
    body = visible(str(text), keep="\n").rstrip("\n")
    longest = max((len(run) for run in re.findall(r"`+", body)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind}\n{body}\n{fence}"


def quoted(text: object) -> str:
    """A code span: nothing in it is markup, and it cannot end early or begin a new line."""
    body = visible(str(text)).replace("`", "'").strip()
    return f"`{body}`" if body else ""


def _in_table(text: object) -> str:
    """A code span that cannot end its cell, whatever stands before its bars."""
    return quoted(text).replace("|", "\\u007c")


def _pairs(values: Mapping[str, object]) -> list[str]:
    return [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]


@cache
def _template() -> Template:
    environment = SandboxedEnvironment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"fenced": fenced, "quoted": quoted, "in_table": _in_table}
    return environment.from_string((_FOLDER / "brief.md.j2").read_text(encoding="utf-8"))


@cache
def _phrases(language: str) -> Callable[[str], str]:
    phrases: dict[str, dict[str, str]] = yaml.safe_load((_FOLDER / "phrases.yaml").read_text(encoding="utf-8"))
    return lambda key: phrases[key][language]


def _gate(order: WorkOrder, manifest: SeatManifest | None, request: GateRequest) -> dict[str, Any]:
    """A gate with its thresholds as the plan will seal them, defaults included."""
    parameters: dict[str, JsonValue] = dict(request.parameters)
    if manifest is not None and isinstance(order, RunnableOrder):
        known = gate(request.name, request.version)
        try:
            sealed = known.Parameters.model_validate(sealed_parameters(order, manifest, request))
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            raise InputError(
                "no brief can say how this gate judges",
                where=f"{order.id}: gates.{request.name}: {'.'.join(map(str, fault['loc']))}",
                found=fault["msg"],
                next_step="`runner check` shows the line",
            ) from error
        parameters = sealed.model_dump(mode="json", exclude_none=True)
    return {
        "name": f"{request.name}@{request.version}",
        "thresholds": _pairs(parameters),
        "amounts": _pairs(request.windows),
    }


def _planned(request: GateRequest) -> dict[str, Any]:
    manner = manner_of(request.measure) if request.measure else {}
    if request.rests_on:
        manner |= {"rests_on": ", ".join(request.rests_on)}
    return {
        **{"name": request.name, "what": request.planned, "measure": request.measure},
        **{"lines": _lines(request), "manner": manner.items()},
    }


def _lines(request: GateRequest) -> list[str]:
    return [line_of(one) for one in request.measure.thresholds] if request.measure else []


def _recipe(order: WorkOrder) -> str:
    recipe = order.model_dump(mode="json", exclude_defaults=True).get("recipe")
    return json.dumps(recipe, indent=2, ensure_ascii=False) if recipe else ""


def _contract_lines(contract: Contract) -> list[str]:
    """What must stay, one line each."""
    lines = [*contract.cli, *(f"{old} → {new}" for old, new in contract.name_map.items()), *contract.file_outputs]
    if contract.config_edits:
        for verb in ("add", "remove", "keep"):
            lines += [f"configuration, {verb}: {text}" for text in getattr(contract.config_edits, verb)]
    for pointer in contract.pointers:
        details = (pointer.stride and f"stride {pointer.stride}", pointer.align and f"aligned to {pointer.align}")
        extra = [str(text) for text in (*details, pointer.lifetime) if text]
        lines.append(", ".join([f"{pointer.name}: {pointer.shape} {pointer.dtype}", *extra]))
    if contract.scratch:
        zeroed = "zeroed once" if contract.scratch.zeroed else "not zeroed"
        lines.append(f"scratch: {contract.scratch.bytes} bytes for each {contract.scratch.key}, {zeroed}")
    lines += contract.numeric_boundaries
    lines += [f"{site}: output {dtype}" for site, dtype in contract.out_dtype.items()]
    lines += [f"{one.name} = {' | '.join(one.values)} (default {one.default})" for one in contract.env_flags]
    return [*lines, *contract.invariants]


__all__ = ["LANGUAGES", "brief_of", "fenced", "quoted", "render"]
