"""Whether the sealed plan judges by what the order asks for: gates, parameters, amounts and the primary figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from runner.errors import TrustError
from runner.model.plan import Plan, PlannedWindow
from runner.model.verdict import Status
from runner.yaml_strict import mapping

_SEALED_ELSEWHERE = {"metric", "secondary", "margin", "pairing"}
"""Fields of ``primary`` that the gate ``speed`` is sealed with, where the order gives the gate no own value."""


def check_order(text: str, plan: Plan, where: str) -> None:
    """Raises TrustError where the plan leaves out a gate of the order or judges by something else.

    InputError for a text that is no YAML.
    The order is read as text, so that it needs no schema: an old report is checked against what its order said then.
    """
    try:
        _check(mapping(text), plan, where)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise TrustError(
            "the order's gates cannot be read",
            where=where,
            expected="gates with names, a primary figure with pairs",
            found=f"{type(error).__name__}: {error}",
        ) from error


def may_stop(text: str, gate: str, status: Status) -> bool:
    """Whether a kill line of the order on ``gate`` may have ended the work, the gate having said ``status``.

    A line on a figure strikes wherever its figure lies, so that what is left to say is that the gate was judged.
    """
    lines = [line for line in mapping(text).get("kill_lines", []) if line["gate"] == gate]
    failed = status in (Status.FAIL, Status.INVALID)
    return any(failed or (line.get("metric") is not None and status is not Status.NOT_RUN) for line in lines)


def _check(asked: Mapping[str, Any], plan: Plan, where: str) -> None:
    gates = [gate for gate in asked.get("gates", []) if "planned" not in gate]
    wanted = [f"{gate['name']}@{gate.get('version', 1)}" for gate in gates]
    found = [f"{gate.name}@{gate.version}" for gate in plan.gates]
    if wanted != found:
        raise TrustError(
            "the plan does not have the order's gates", where=where, expected=", ".join(wanted), found=", ".join(found)
        )
    primary = asked.get("primary", {})
    for gate, sealed in zip(gates, plan.gates, strict=True):
        own = dict(gate.get("parameters", {}))
        if sealed.name == "speed":
            said = {name: primary[name] for name in primary.keys() & _SEALED_ELSEWHERE if primary[name] != []}
            own = said | own
        for name, value, other in _differences(own, sealed.parameters):
            raise TrustError(
                "the plan judges by something else than the order says",
                where=f"{where}, {sealed.name}@{sealed.version}, {name}",
                expected=str(value),
                found=str(other),
            )
        _check_amounts(gate.get("windows", {}), [one for one in plan.windows if one.id in sealed.windows], where)
    if primary and int(primary["pairs"]) != plan.pairs:
        raise TrustError(
            "the plan has other pairs than the order", where=where, expected=primary["pairs"], found=str(plan.pairs)
        )


def _check_amounts(asked: Mapping[str, Any], windows: list[PlannedWindow], where: str) -> None:
    """What the order asks of a gate's windows one of them has, where any has a field of that name."""
    for name, value in asked.items():
        found = [window.arguments[name] for window in windows if name in window.arguments]
        if found and not any(_equal(value, one) for one in found):
            raise TrustError(
                "less or other is measured than the order says",
                where=f"{where}, {windows[0].id}, {name}",
                expected=str(value),
                found=", ".join(sorted({str(one) for one in found})),
            )


def _differences(own: Mapping[str, Any], sealed: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name, value in own.items():
        if name == "pairing" and value == "block" and name not in sealed:
            continue  # what is so by itself is not sealed
        if name not in sealed or not _equal(value, sealed[name]):
            yield name, value, sealed.get(name, "nothing")


def _equal(text: Any, sealed: Any) -> bool:
    """Whether a value of the order's text is the sealed one, which its schema may have typed."""
    if isinstance(text, list):
        return isinstance(sealed, list) and len(text) == len(sealed) and all(map(_equal, text, sealed))
    if isinstance(text, dict):
        return (
            isinstance(sealed, dict)
            and text.keys() <= sealed.keys()
            and all(_equal(value, sealed[name]) for name, value in text.items())
        )
    if isinstance(sealed, bool):
        return str(text) == str(sealed).lower()
    if str(text) == str(sealed):
        return True
    try:
        return Decimal(str(text)) == Decimal(str(sealed))
    except InvalidOperation:
        return False


__all__ = ["check_order", "may_stop"]
